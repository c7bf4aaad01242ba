"""What a conversation is made of: the neutral items of a thread. Law: an item is what was said or done, never how a
wire spells it; ids that a backend gave are kept apart (`HistoryRecord.provider_id`) and can be dropped without loss."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import msgspec

from gateway.a2a.model import Json, Message, Part


class UserItem(msgspec.Struct, frozen=True, tag_field="kind", tag="user"):
    """One accepted message of the caller."""

    message: Message


class AssistantItem(msgspec.Struct, frozen=True, tag_field="kind", tag="assistant"):
    """What the agent answered, without gaps between its parts."""

    parts: tuple[Part, ...]


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="kind", tag="reasoning"):
    """`opaque` is the backend's own object without its id, to be replayed as it came; `text` is what may be shown."""

    text: str
    opaque: Json = None


class CallItem(msgspec.Struct, frozen=True, tag_field="kind", tag="call", omit_defaults=True):
    """`arguments` is the raw text that the model wrote, JSON or not. `call_id` is the backend's.

    `handled`: the backend said that it runs it (True) or does not (False); None: it did not say.
    `asking`: no call that is to be run, but the backend's question whether it may run this tool of its own; the text is
    the name of its server. Its OutputItem is the decision.
    """

    call_id: str
    name: str
    arguments: str
    handled: bool | None = None
    asking: str | None = None


class OutputItem(msgspec.Struct, frozen=True, tag_field="kind", tag="output", omit_defaults=True):
    """`output` is text or any JSON value; an empty one is an outcome too.

    `approved`: the answer to a question of the backend's (`CallItem.asking`), and nothing else has one; `output` is then
    the reason for it, a text that may be empty.
    """

    call_id: str
    output: Json
    error: bool = False
    approved: bool | None = None


class OpaqueItem(msgspec.Struct, frozen=True, tag_field="kind", tag="opaque", omit_defaults=True):
    """Something of the backend's that only its own adapter understands; `type` is the backend's word for it.

    `boundary`: the backend has put into it all that was said before, which need not be sent again.
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
    """Raises: msgspec.ValidationError or DecodeError for a payload that is no item we know."""
    return _decoder.decode(payload)


def kind(item: Item) -> str:
    """The item's tag: user, assistant, reasoning, call, output or opaque."""
    return str(item.__struct_config__.tag)


class StorageOwner(StrEnum):
    """Who keeps the conversation of a thread: fixed for its epoch."""

    BACKEND = "backend"
    GATEWAY = "gateway"


class HandleKind(StrEnum):
    """What continues a backend thread: nothing, an id that moves with every call, or one that stays."""

    NONE = "none"
    ROTATING = "rotating"
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Declared by an adapter from its settings, without network.

    `opaque_replay`: with a history kept by the gateway, reasoning and opaque items go back to the backend.
    `repeatable`: a request whose outcome is not known may be sent again; None: where the gateway keeps the history, as
    the backend then keeps nothing that a second request could spoil. `either`: the adapter can also serve conversations
    of the other owner, as each request says.
    `state_version`: the schema of the adapter's own JSON; it grows when an older adapter could not read it.
    `call_ids`: how long the backend's id of a tool call means that call and no other: one response, or the whole thread.
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
    """One stored item. `position` grows within the thread; `turn` is the number of its turn, `turn_id` that turn.

    `service_call` is the one that it came with, `sequence` the number there of the tool call that it belongs to.
    `sent_in` is the completed service call whose request (or response) carried it, None while the backend's chain does
    not hold it. `replayable` is False for what must never be shown to the model again, as the text of a cut stream.
    `displaced`: its turn has ended and is no part of the conversation, because a later message took its place.
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
