"""A task for operators: what happened when, in rows without their long texts, and those texts one by one. Law: as in
`contexts`."""

from typing import Literal

import msgspec

from gateway.a2a.model import TaskState
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus


class TaskHead(msgspec.Struct, frozen=True):
    """`context` is the row, `context_id` the public id. `last_event` is the number of the latest event in the log, 0 for
    none, and `first_event` that of the first: retention takes whole logs. `correlation_id` is that of its turn that
    failed, where one has."""

    id: str
    context: str
    context_id: str
    tenant: str
    principal: str
    agent: str
    visible: bool
    state: TaskState
    status_at: int
    created_at: int
    first_event: int
    last_event: int
    correlation_id: str | None


class TurnHead(msgspec.Struct, frozen=True):
    """`tries` above 0: its process died, and others have tried to go on; `gateway.ledger.leases.TRIES`: it is put aside.
    `process` has the turn until it has ended. `usage` is the JSON of its tokens, of an ended turn. `trace` is the caller's
    `traceparent`, with its `tracestate` behind a blank."""

    id: str
    thread: str
    number: int
    status: TurnStatus
    failure_class: str | None
    process: str
    cancel_asked: bool
    displaced: bool
    tries: int
    accepted_at: int
    started_at: int | None
    ended_at: int | None
    last_event: int | None
    usage: str | None
    trace: str | None


class MessageHead(msgspec.Struct, frozen=True):
    """A message to a turn. Ordinal 0 opened it, the others brought decisions or results."""

    turn: str
    ordinal: int
    message_id: str
    received_at: int
    event: int


class CallHead(msgspec.Struct, frozen=True):
    """A service call. `first_at` is the time of the first that came of its answer, known when it has ended."""

    id: str
    turn: str
    round: int
    attempt: int
    status: ServiceCallStatus
    error_class: str | None
    prepared_at: int
    first_at: int | None
    ended_at: int | None
    handle_in: str | None
    pending_handle: str | None
    handle_out: str | None
    run: str | None
    usage: str | None
    weight: int | None


class ToolHead(msgspec.Struct, frozen=True):
    """A tool call; `external_id` is the backend's. `asked_at` is the time at which the model had asked for it, `started_at`
    that of its latest start, `ended_at` that of its outcome; None where that was not noted. `answered_at` is the time of the
    `decision` on it, made by the principal `answered_by`, and `expires_at` the end of the time for it."""

    id: str
    call: str
    turn: str
    sequence: int
    external_id: str
    name: str
    executor: Literal["gateway", "backend", "client"]
    server: str | None
    status: ToolCallStatus
    approval_required: bool
    decision: str | None
    answered_by: str | None
    answered_at: int | None
    expires_at: int | None
    asked_at: int | None
    started_at: int | None
    ended_at: int | None


class ItemHead(msgspec.Struct, frozen=True):
    """An item of the conversation that a service call brought: `reasoning`, `assistant` or `opaque`. It has the time of its
    call. `weight` is what a model reads of it, in bytes. `refused_in`: the call whose request was refused because of it."""

    thread: str
    position: int
    turn: str
    call: str | None
    kind: str
    replayable: bool
    sent_in: str | None
    refused_in: str | None
    weight: int


class Note(msgspec.Struct, frozen=True):
    """What happened to a turn besides its calls. `taken-over`: the process `detail` has continued it."""

    turn: str
    at: int
    kind: str
    detail: str


class Timeline(msgspec.Struct, frozen=True):
    """At most 50 turns of a task in order, and at most 2,500 rows of each other kind that belong to them, each kind in order.

    `after` is the number of the last turn where there are more; `whole` counts all turns of the task. `cut` are the kinds of
    which there are more: "messages", "calls", "tools", "items", "notes".
    """

    task: TaskHead
    turns: tuple[TurnHead, ...]
    messages: tuple[MessageHead, ...]
    calls: tuple[CallHead, ...]
    tools: tuple[ToolHead, ...]
    items: tuple[ItemHead, ...]
    notes: tuple[Note, ...]
    whole: int
    after: int | None
    cut: frozenset[str]


BodyKind = Literal["message", "said", "artifacts", "status", "arguments", "outcome", "item", "usage"]
"""`message`: of a caller, id of the turn and ordinal. `said`, `artifacts`: the record of an ended turn. `status`: the message
of a task's status. `arguments`, `outcome`: of a tool call. `item`: id of the thread and position. `error`, `usage`: what a
service call has of both."""


class BodyKey(msgspec.Struct, frozen=True, array_like=True):
    """A long text. `number` is the ordinal of a message or the position of an item."""

    kind: BodyKind
    id: str
    number: int = 0


class Body(msgspec.Struct, frozen=True):
    """A piece of a long text from character `offset` on, as it is stored: mostly JSON. `length` is that of the whole, in
    characters."""

    text: str
    offset: int
    length: int

    @property
    def next(self) -> int | None:
        """Where the next piece begins."""
        end = self.offset + len(self.text)
        return end if self.text and end < self.length else None


class EventLine(msgspec.Struct, frozen=True):
    """An event of the log, A2A 1.0 JSON of `length` bytes; `payload` is its beginning where that is shorter."""

    number: int
    payload: bytes
    length: int


class EventPage(msgspec.Struct, frozen=True):
    """Events in order. `after` gives the next page; None: there is none now. `last` is the number of the latest event."""

    events: tuple[EventLine, ...]
    after: int | None
    last: int
