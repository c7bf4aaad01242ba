"""Parts of messages in the form of both OpenAI wires."""

import mimetypes

import msgspec
from msgspec import UNSET

from gateway.a2a.model import Json, Part


def json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def part_text(part: Part) -> str | None:
    """The text of a part of text or data, None for a file."""
    if part.text is not None:
        return part.text
    return None if part.data is UNSET else json_text(part.data)


def answer_text(parts: tuple[Part, ...]) -> str:
    """An earlier answer of the model. The model cannot take its own files back: a file becomes its name."""
    texts = []
    for part in parts:
        text = part_text(part)
        texts.append(f"[{part.filename or part.url or media_type(part)}]" if text is None else text)
    return "".join(texts)


def media_type(part: Part) -> str:
    guessed = mimetypes.guess_type(part.filename or part.url or "")[0]
    return part.media_type or guessed or "application/octet-stream"


def file_url(part: Part) -> str:
    """The file's address; a data URL for a file whose bytes are in the part."""
    return part.url if part.url is not None else f"data:{media_type(part)};base64,{part.raw}"


def file_name(part: Part) -> str:
    return part.filename or f"file{mimetypes.guess_extension(media_type(part)) or ''}"
