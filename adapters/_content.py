"""Parts and items as both OpenAI wires want them, as far as the two agree."""

import mimetypes

import msgspec
from msgspec import UNSET

from gateway.model import Json, Part

_DEFAULT_MEDIA_TYPE = "application/octet-stream"


def compact(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def part_text(part: Part) -> str | None:
    """What a part of text or data says, None for a file."""
    if part.text is not None:
        return part.text
    return None if part.data is UNSET else compact(part.data)


def said(parts: tuple[Part, ...]) -> str:
    """An answer of the model's, to be shown to it again; it cannot take its own files back."""
    texts = []
    for part in parts:
        text = part_text(part)
        texts.append(f"[{part.filename or part.url or media_type(part)}]" if text is None else text)
    return "".join(texts)


def media_type(part: Part) -> str:
    if part.media_type:
        return part.media_type
    return mimetypes.guess_type(part.filename or part.url or "")[0] or _DEFAULT_MEDIA_TYPE


def file_url(part: Part) -> str:
    """The file's address; for a file that came along a data URL."""
    return part.url if part.url is not None else f"data:{media_type(part)};base64,{part.raw}"


def file_name(part: Part) -> str:
    return part.filename or f"file{mimetypes.guess_extension(media_type(part)) or ''}"
