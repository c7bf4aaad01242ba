"""The neutral items of a conversation. Law: an item has the content, never the form of a wire; the ids of a backend are kept
apart (`HistoryRecord.provider_id`) and can be dropped without loss. The weight of an item is the bytes that a model reads of
it, without counting tokens."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import UNSET

from gateway.a2a.model import Json, Message, Part


class UserItem(msgspec.Struct, frozen=True, tag_field="kind", tag="user"):
    """One accepted message of the caller."""

    message: Message


class AssistantItem(msgspec.Struct, frozen=True, tag_field="kind", tag="assistant"):
    """An uninterrupted piece of the agent's answer."""

    parts: tuple[Part, ...]


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="kind", tag="reasoning"):
    """Reasoning of the model. `opaque` is the backend's object without its id, which is sent back unchanged. `text` is
    shown to callers."""

    text: str
    opaque: Json = None


class CallItem(msgspec.Struct, frozen=True, tag_field="kind", tag="call", omit_defaults=True):
    """A tool call of the model. `arguments` is the model's raw text, which may not be JSON. `call_id` is the backend's
    id of the call.

    `handled` says whether the backend runs the call, or is None when that is not known. With `asking`, the item is the
    backend's question whether it may run its own tool on the server of this name; the OutputItem of the call is the
    decision. `opaque` is what the backend gave with the call and wants back with it, unchanged.
    """

    call_id: str
    name: str
    arguments: str
    handled: bool | None = None
    asking: str | None = None
    opaque: Json = None


class OutputItem(msgspec.Struct, frozen=True, tag_field="kind", tag="output", omit_defaults=True):
    """The outcome of a tool call. `output` is a text or any JSON value; an empty value is an outcome too.

    `approved` is the decision on a question of the backend (`CallItem.asking`), and None otherwise. With a decision,
    `output` is its reason, a text that may be empty.
    """

    call_id: str
    output: Json
    error: bool = False
    approved: bool | None = None


class OpaqueItem(msgspec.Struct, frozen=True, tag_field="kind", tag="opaque", omit_defaults=True):
    """An object of the backend that only its adapter understands; `type` is the backend's.

    `boundary`: it contains the whole conversation before it, which need not be sent again.
    """

    type: str
    payload: Json
    boundary: bool = False


Item = UserItem | AssistantItem | ReasoningItem | CallItem | OutputItem | OpaqueItem

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Item] = msgspec.json.Decoder(Item)


def encode(item: Item) -> bytes:
    return _encoder.encode(item)


def decode(payload: str | bytes) -> Item:
    """Raises: msgspec.ValidationError or DecodeError for a payload that is no known item."""
    return _decoder.decode(payload)


def kind(item: Item) -> str:
    """The item's tag: user, assistant, reasoning, call, output or opaque."""
    return str(item.__struct_config__.tag)


class StorageOwner(StrEnum):
    """The keeper of a thread's conversation, fixed for the epoch."""

    BACKEND = "backend"
    GATEWAY = "gateway"


class HandleKind(StrEnum):
    """The id that continues a backend thread: none, a new one with every call, or a constant one."""

    NONE = "none"
    ROTATING = "rotating"
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of an adapter's conversations, and the properties that follow. The adapter declares it from its
    settings, without network.

    With `opaque_replay` and owner GATEWAY, reasoning and opaque items are sent back to the backend. `repeatable` says
    that a request with an unknown outcome may be sent again; None stands for repeatable only with owner GATEWAY, where
    the backend keeps nothing that a second request could spoil. `either` says that the adapter also serves
    conversations of the other owner, which each request names. `state_version` is the version of the schema of the
    adapter's JSON; it grows when an older adapter could not read the JSON. `call_ids` is the scope in which the
    backend's id of a tool call is unique.
    """

    owner: StorageOwner
    handle: HandleKind
    opaque_replay: bool = False
    repeatable: bool | None = None
    either: bool = False
    state_version: int = 1
    call_ids: Literal["response", "thread"] = "response"

    def __post_init__(self) -> None:
        if (self.owner is StorageOwner.GATEWAY) != (self.handle is HandleKind.NONE):
            raise ValueError(f"owner {self.owner} and handle kind {self.handle} exclude each other")

    @property
    def may_repeat(self) -> bool:
        return self.owner is StorageOwner.GATEWAY if self.repeatable is None else self.repeatable


class HistoryRecord(msgspec.Struct, frozen=True):
    """One stored item. `position` grows within the thread; `turn` and `turn_id` are the number and the id of its turn.

    `service_call` is the service call that brought the item; `sequence` is the number of the item's tool call in that
    service call. `sent_in` is the completed service call whose request or response carried the item, or None while the
    backend's chain does not hold it. If `replayable` is false, the item is never sent to the model again; an example is
    the text of a stream that was cut. `refused_in` is the service call whose request the backend refused because of this
    item, or of another one that was marked with it. `displaced` says that the turn of the item has ended and is not part
    of the conversation, because a later message replaced the turn.
    """

    position: int
    turn: int
    item: Item
    provider_id: str | None = None
    sent_in: str | None = None
    replayable: bool = True
    turn_id: str = ""
    failed: bool = False
    service_call: str | None = None
    sequence: int | None = None
    displaced: bool = False
    refused_in: str | None = None


REFUSED_OUTPUT = "The result of this call was not accepted by the service, and is left out."
"""The outcome that a model reads in the place of an outcome that its backend refused."""


def refused_output(item: OutputItem) -> OutputItem:
    """The item that is sent in the place of a refused outcome. The call is answered, since a chain waits for an answer;
    a decision that did not arrive is a rejection."""
    approved = None if item.approved is None else False
    return OutputItem(item.call_id, REFUSED_OUTPUT, error=True, approved=approved)


def is_plain(part: Part) -> bool:
    """Whether the part is a text and says nothing else."""
    return part.text is not None and part.metadata is None and part.filename is None and part.media_type is None


def gap(before: str, after: str) -> str:
    """The text between two texts of one answer that keeps them apart where they are joined."""
    return "\n\n" if before and after and not (before[-1].isspace() or after[0].isspace()) else ""


def joined(texts: Iterable[str]) -> str:
    """The texts of one answer as one text."""
    whole = ""
    for text in texts:
        whole += gap(whole, text) + text
    return whole


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
