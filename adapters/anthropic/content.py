"""Parts of messages -> content blocks of the Messages API. Law: no empty text goes out, since the service refuses it; what the
model cannot take is refused here, by its media type.

Source: anthropic 2.14.0, types `ContentBlockParam` and `DocumentBlockParam`.
"""

import base64
import mimetypes
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET

from adapters.http.failures import Failures
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import AdapterError
from gateway.ports.conversation import joined

Block = dict[str, Json]

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
PDF = "application/pdf"
TEXTS = ("application/json", "application/xml", "application/yaml")
"""Types that are text besides those of `text/`."""
LONGEST_TITLE = 255
"""Characters of the title of a document. The service takes 500, and 255 in a citation, which goes back with a paused answer."""

BESIDE = "beside_answer"
"""The key in the metadata of a part that callers get, and that the model does not need back."""


def json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def text_block(text: str) -> Iterator[Block]:
    if text.strip():
        yield {"type": "text", "text": text}


def answer(parts: Iterable[Part]) -> Iterator[Block]:
    """An earlier answer of the model. It cannot take its own files back: a file becomes its name."""
    kept = (part for part in parts if BESIDE not in (part.metadata or {}))
    texts = ((_text(part), part) for part in kept)
    yield from text_block(joined(f"[{_name(part)}]" if text is None else text for text, part in texts))


class UserContent:
    """Encodes what users say. `citations`: the model is asked to cite the documents."""

    def __init__(self, failures: Failures, *, citations: bool) -> None:
        self._failures = failures
        self._citations: Block = {"citations": {"enabled": True}} if citations else {}

    def blocks(self, parts: Iterable[Part]) -> Iterator[Block]:
        """Raises: AdapterError for a file that the model cannot take."""
        for part in parts:
            text = _text(part)
            if text is None:
                yield self._file(part)
            else:
                yield from text_block(text)

    def _file(self, part: Part) -> Block:
        kind = _media_type(part)
        if part.raw == "":
            raise self._failures.unsendable("A file is empty.", f"a file of type {kind!r} is empty")
        if kind in IMAGES:
            return {"type": "image", "source": _source(part, kind)}
        if kind == PDF:
            return self._document(part, _source(part, kind))
        if part.raw is None:
            return {"type": "text", "text": f"{_name(part)}: {part.url}"}
        try:
            text = base64.b64decode(part.raw).decode()
        except ValueError as error:
            raise self._not_text(kind) from error
        return self._document(part, {"type": "text", "media_type": "text/plain", "data": text})

    def _not_text(self, kind: str) -> AdapterError:
        if kind.startswith("text/") or kind in TEXTS:
            return self._failures.unsendable(
                "A file of text is not in UTF-8.", f"a file of type {kind!r} is not in UTF-8"
            )
        detail = f"a file of type {kind!r} is neither text nor a PDF nor one of {', '.join(IMAGES)}"
        return self._failures.unsendable("A file is neither text nor of a type that the model takes.", detail)

    def _document(self, part: Part, source: Block) -> Block:
        title = {"title": part.filename[:LONGEST_TITLE]} if part.filename else {}
        return {"type": "document", "source": source, **title, **self._citations}


def _text(part: Part) -> str | None:
    """The text of a part of text or data, None for a file."""
    if part.text is not None:
        return part.text
    return None if part.data is UNSET else json_text(part.data)


def _source(part: Part, kind: str) -> Block:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": kind, "data": part.raw}


def _media_type(part: Part) -> str:
    guessed = mimetypes.guess_type(part.filename or part.url or "")[0]
    kind = (part.media_type or guessed or "application/octet-stream").partition(";")[0].strip().lower()
    return "image/jpeg" if kind == "image/jpg" else kind


def _name(part: Part) -> str:
    return part.filename or part.url or _media_type(part)
