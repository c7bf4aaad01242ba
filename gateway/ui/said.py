"""The words of items and messages, as previews. Law: pure."""

import msgspec
from msgspec import UNSET

from gateway.a2a.model import Part
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    Item,
    OpaqueItem,
    OutputItem,
    ReasoningItem,
    UserItem,
)

PREVIEW = 400
"""Characters."""


def words_of(item: Item) -> str:
    """What an item says, cut to PREVIEW characters."""
    match item:
        case UserItem(message=message):
            return of_parts(message.parts)
        case AssistantItem(parts=parts):
            return of_parts(parts)
        case ReasoningItem(text=text):
            return text[:PREVIEW] or "(not readable)"
        case CallItem(name=name, arguments=arguments):
            return f"{name} {arguments}"[:PREVIEW]
        case OutputItem(output=output):
            return (output if isinstance(output, str) else msgspec.json.encode(output).decode())[:PREVIEW]
        case OpaqueItem(type=type_):
            return type_[:PREVIEW]


def of_parts(parts: tuple[Part, ...]) -> str:
    """The text of the parts, and a word for each that is none."""
    return " ".join(map(_of_part, parts))[:PREVIEW]


def _of_part(part: Part) -> str:
    if part.text is not None:
        return part.text[:PREVIEW]
    if part.data is not UNSET:
        return msgspec.json.encode(part.data).decode()[:PREVIEW]
    return f"[{part.filename or part.media_type or 'a file'}]"
