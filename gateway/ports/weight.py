"""The weight of an item in a model's context: the bytes that the model reads, without counting tokens."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from gateway.a2a.model import Json, Part
from gateway.ports.conversation import AssistantItem, CallItem, Item, OpaqueItem, OutputItem, ReasoningItem, UserItem

_FRAME = 16
"""Of every item: role, ids, punctuation."""
_FILE = 4000
"""A picture or a sound, whose weight for a model does not follow from its bytes."""
_DOCUMENT_SHARE = 10
"""One of so many bytes of a document is text."""


def weigh(items: Iterable[Item]) -> int:
    return sum(map(weight, items))


def weight(item: Item) -> int:
    """0 for an empty answer, which is never sent."""
    match item:
        case UserItem(message=message):
            return _FRAME + sum(map(_part, message.parts))
        case AssistantItem(parts=parts) if all(part.text == "" for part in parts):
            return 0
        case AssistantItem(parts=parts):
            return _FRAME + sum(_FRAME if _is_file(part) else _part(part) for part in parts)
        case CallItem(name=name, arguments=arguments):
            return _FRAME + _text(name) + _text(arguments)
        case OutputItem(output=output):
            return _FRAME + (_text(output) if isinstance(output, str) else _json(output))
        case ReasoningItem(text=text, opaque=opaque):
            return _FRAME + (_text(text) if opaque is None else _json(opaque))
        case OpaqueItem(payload=payload):
            return _FRAME + _json(payload)


def _is_file(part: Part) -> bool:
    return part.raw is not None or part.url is not None


def _part(part: Part) -> int:
    if part.text is not None:
        return _text(part.text)
    if not _is_file(part):
        return 0 if part.data is UNSET else _json(part.data)
    kind = (part.media_type or "").partition("/")[0]
    size = len(part.raw or "") * 3 // 4
    if kind == "text":
        return size or _FILE
    return _FILE if kind in {"image", "audio", "video"} else max(_FILE, size // _DOCUMENT_SHARE)


def _text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _json(value: Json) -> int:
    return len(msgspec.json.encode(value))
