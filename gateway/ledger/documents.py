"""A context as a document that another gateway can import, and contexts that adopt a backend's handle. Law: the types
validate all of a document; parts are nested in their owner, so that no reference leaves the document.

Times are milliseconds since 1970. A document contains handles: it is for operators, never for a caller.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.a2a.model import Json, Message, StreamResponse, TaskState
from gateway.ledger.tasks import Usage
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ports.conversation import HandleKind, Item, StorageOwner

FORMAT: Final = "a2a-gateway/context"
VERSION: Final = 1

Id = Annotated[str, Meta(min_length=1, max_length=256)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Portable(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Base of all parts: an unknown field is an error, because it would be lost."""


class PortableToolCall(_Portable, frozen=True, kw_only=True):
    """`outcome` is absent while the call is open; null is an outcome."""

    id: Id
    sequence: Number
    external_id: str
    name: str
    arguments: str
    executor: Literal["gateway", "backend", "client"]
    server: str | None = None
    status: str
    outcome: Json | UnsetType = UNSET
    digest: str | None = None
    approval_required: bool = False
    approval_decision: str | None = None
    approval_by: str | None = None
    approval_at: Number | None = None
    approval_expires_at: Number | None = None
    approval_consumed_at: Number | None = None
    asked_at: Number | None = None
    started_at: Number | None = None
    ended_at: Number | None = None


class PortableCall(_Portable, frozen=True, kw_only=True):
    id: Id
    round: Number
    attempt: Number
    status: Literal["completed", "failed", "unknown"]
    prepared_at: Number
    ended_at: Number | None = None
    error_class: str | None = None
    handle_in: str | None = None
    pending_handle: str | None = None
    handle_out: str | None = None
    usage: Json = None
    weight: Number | None = None
    run: str | None = None
    first_at: Number | None = None
    tool_calls: tuple[PortableToolCall, ...] = ()


class PortableInput(_Portable, frozen=True, kw_only=True):
    ordinal: Number
    message: Message
    digest: str
    received_at: Number
    event: Number
    key_kind: Literal["header", "message_id"] | None = None
    key: str | None = None


class PortableTurn(_Portable, frozen=True, kw_only=True):
    """A turn in a document; only ended turns are exported. `task` is the id of one of the document's tasks. `displaced`
    says that a later message took the place of the turn, which is not part of the conversation."""

    id: Id
    task: Id
    number: Number
    status: Literal["completed", "failed", "cancelled", "rejected"]
    accepted_at: Number
    ended_at: Number
    inputs: Annotated[tuple[PortableInput, ...], Meta(min_length=1)]
    messages: tuple[Message, ...] = ()
    artifacts: tuple[Json, ...] = ()
    usage: Usage | None = None
    calls: tuple[PortableCall, ...] = ()
    failure_class: str | None = None
    base_generation: Number | None = None
    last_event: Number | None = None
    displaced: bool = False
    started_at: Number | None = None


class PortableItem(_Portable, frozen=True, kw_only=True):
    """One item of the history: `item`, or the message of the turn's input with the ordinal `input`.

    `turn`, `service_call`, `sent_in`, `refused_in` and `tool_call` are ids within the same thread. `refused_in` is the
    service call whose request the backend refused because of its content, this item included.
    """

    position: Number
    turn: Id
    item: Item | None = None
    input: Number | None = None
    service_call: Id | None = None
    tool_call: Id | None = None
    provider_id: str | None = None
    item_group: str | None = None
    replayable: bool = True
    sent_in: Id | None = None
    refused_in: Id | None = None


class PortableThread(_Portable, frozen=True, kw_only=True):
    id: Id
    agent: Id
    epoch: Number
    owner: StorageOwner
    handle_kind: HandleKind
    generation: Number
    state: Literal["open", "unsynced", "lost", "closed", "expired", "deleted"]
    handle: str | None = None
    clean_handle: str | None = None
    adapter_state: Json = None
    state_version: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    began_at: Number | None = None
    began_by: str | None = None
    turns: tuple[PortableTurn, ...] = ()
    items: tuple[PortableItem, ...] = ()


class PortableTask(_Portable, frozen=True, kw_only=True):
    """A task in a document. `events` is the complete log of the task, in order from number 1, or empty if the log has
    expired.

    The state is final, or a state in which the task waits for the caller.
    """

    id: Id
    agent: Id
    created_at: Number
    state: TaskState
    status_at: Number
    last_event: Number
    visible: bool = True
    status_message: Message | None = None
    events: tuple[StreamResponse, ...] = ()


class ContextDocument(_Portable, frozen=True, kw_only=True):
    """`context_id` is the public one."""

    format: Literal["a2a-gateway/context"]
    version: Literal[1]
    id: Id
    context_id: Id
    state: Literal["open", "closed"]
    created_at: Number
    last_used_at: Number
    tasks: tuple[PortableTask, ...] = ()
    threads: tuple[PortableThread, ...] = ()


class Adopt(msgspec.Struct, frozen=True):
    """A new context whose first message continues from the handle of its thread. Conflict when the public id is taken."""

    caller: Caller
    context_public: str
    thread: ThreadRecord
    now: int


class Import(msgspec.Struct, frozen=True):
    """A context of another database becomes the caller's."""

    caller: Caller
    document: ContextDocument
    now: int
