"""The commands of a turn's machine, in the order in which they are to be carried out."""

import msgspec

from gateway.a2a.model import Json, Message, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.states import ToolCallStatus, TurnStatus


class Publish(msgspec.Struct, frozen=True, gc=False):
    """An update for the task's log and its streams."""

    update: TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class RecordPending(msgspec.Struct, frozen=True):
    """The handle that the service call may lead to, and its own name at the backend, to be stored before any later update
    is shown. None where the backend has not named it, or not again."""

    handle: str | None
    run: str | None


class CompleteCall(msgspec.Struct, frozen=True):
    """The service call is completed: its items and its handle are stored in one commit. When `handle` is None, the
    thread keeps its handle."""

    handle: str | None
    state: Json
    usage: Json
    items: tuple[NewItem, ...]
    tool_calls: tuple[NewToolCall, ...]
    secret: Json = None


class AbortCall(msgspec.Struct, frozen=True):
    """The service call does not count. `items` are its output; of these, only the answer that a cancel interrupted is sent to
    the model again. `usage` is the backend's report of tokens, if there is one."""

    error_class: str
    items: tuple[NewItem, ...]
    usage: Json = None


class OwnershipConflict(msgspec.Struct, frozen=True):
    """The backend kept a call of a conversation that the gateway keeps. `adopts` says that the thread continues from
    the backend's handle."""

    handle: str | None
    adopts: bool


class StrayResult(msgspec.Struct, frozen=True):
    """The backend sent the result of a call that it never made; the operator may want to know."""

    call_id: str


class UnknownFinish(msgspec.Struct, frozen=True):
    """The backend's reason for an answer that is not whole is not known by name; `correlation_id` is that of the message in
    which the caller is told so."""

    reason: str
    correlation_id: str


class Continue(msgspec.Struct, frozen=True):
    """The service call is complete and the turn continues: with its tool calls first, then with another service call."""


class StartTool(msgspec.Struct, frozen=True):
    """C4: the tool call of this id is about to run."""

    id: str


class EndTool(msgspec.Struct, frozen=True):
    """C5: the tool call of this id has its outcome, `at` this time; `item` is the outcome for the model."""

    id: str
    status: ToolCallStatus
    outcome: Json
    at: int
    item: NewItem


class ReportTool(msgspec.Struct, frozen=True):
    """The backend has reported the outcome of its tool call of this id with a later service call, `at` this time. Its item is
    among those of that call."""

    id: str
    status: ToolCallStatus
    outcome: Json
    at: int


class PauseTool(msgspec.Struct, frozen=True):
    """The tool call of this id did nothing, and may run again when the user has consented, until `expires_at`."""

    id: str
    expires_at: int


class Wait(msgspec.Struct, frozen=True):
    """The turn waits until the caller has answered the questions of `message`."""

    state: TaskState
    message: Message


class EndTurn(msgspec.Struct, frozen=True):
    """`state` is the task's state, `message` its status message, `metadata` that of the final event.

    `failure` of a turn that did not fail is a gap: the reason why the backend does not know the output of this turn.
    """

    status: TurnStatus
    state: TaskState
    message: Message | None = None
    failure: str | None = None
    metadata: dict[str, Json] | None = None


class Reply(msgspec.Struct, frozen=True):
    """The answer is this message, without a task."""

    message: Message


Command = (
    Publish
    | RecordPending
    | CompleteCall
    | AbortCall
    | OwnershipConflict
    | StrayResult
    | UnknownFinish
    | Continue
    | StartTool
    | EndTool
    | ReportTool
    | PauseTool
    | Wait
    | EndTurn
    | Reply
)
