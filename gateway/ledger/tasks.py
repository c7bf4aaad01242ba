"""Tasks as callers see them: records, and the commit points of events and endings."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.a2a.model import Artifact, Json, Message, TaskState
from gateway.ledger.errors import CorruptRecord
from gateway.ledger.states import TurnStatus


class TaskRecord(msgspec.Struct, frozen=True):
    """A task's row with its context's public id. `last_event` is the number of the task's last event at the end of its
    last turn."""

    id: str
    context: str
    context_id: str
    agent: str
    state: TaskState
    status_message: Message | None
    status_at: int
    last_event: int
    visible: bool
    created_at: int


class EventRow(msgspec.Struct, frozen=True):
    """Consecutive events of one task: numbers `first` to `last`, their A2A 1.0 JSON joined by newlines."""

    task: str
    first: int
    last: int
    payload: bytes


_Number = Annotated[int, Meta(ge=0)]


class Usage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Numbers of tokens; None for a number that was not reported. The cached ones are among the input tokens, those of
    reasoning among the output tokens."""

    input_tokens: _Number | None = None
    cached_tokens: _Number | None = None
    output_tokens: _Number | None = None
    reasoning_tokens: _Number | None = None
    total_tokens: _Number | None = None


class Finish(msgspec.Struct, frozen=True):
    """C6: a turn ends. When `state` is None, the task continues with the next accepted turn. Conflict when the task has
    ended.

    `artifacts` and `messages` are the public record of this turn, as JSON arrays, and `usage` are its tokens. `process` is
    the process that has the turn; Conflict when another process has taken the turn over. None stands for any process.
    """

    task: str
    turn: str
    thread: str
    status: TurnStatus
    failure_class: str | None
    state: TaskState | None
    message: Message | None
    events: EventRow | None
    last_event: int
    artifacts: bytes
    messages: bytes
    usage: Usage | None
    visible: bool
    now: int
    process: str | None = None


class Close(msgspec.Struct, frozen=True):
    """A task that waits for its caller ends without another turn. Conflict when it does not wait."""

    task: str
    state: TaskState
    event: EventRow | None
    last_event: int
    now: int


class Reveal(msgspec.Struct, frozen=True):
    """There is a task: its agent will not answer with a bare message any more. Conflict when the task has ended."""

    task: str


class Append(msgspec.Struct, frozen=True):
    """Events of a running turn, without any other change. Conflict where another process than the `holder` has the turn by now;
    without `holder` nobody asks."""

    events: EventRow
    holder: str | None = None


class StoredArtifact(msgspec.Struct, frozen=True):
    """An artifact in the form in which one turn made it. With `append`, its parts follow the parts of an earlier
    turn."""

    artifact: Artifact
    append: bool = False


Refused = Literal["message", "tool-result", "tool-result-and-message", "turn"]
"""What a backend refused of a turn: its message, an outcome of a tool, both together, or all of it although it had been
accepted before."""

REFUSALS: Mapping[int, Refused] = {
    1: "message",
    2: "tool-result",
    3: "tool-result-and-message",
    **dict.fromkeys((4, 5, 6), "turn"),
}
"""The meaning of the bits of a turn's refused items: 1 for a message, 2 for an outcome, 4 for what had been accepted before."""


class TurnRecord(msgspec.Struct, frozen=True):
    """One turn of a task for the public record: its message and its output, None while it has not ended.

    `answers`: its further messages, each with the number of the first event after it; `messages` contains them, too. Where
    the history was not asked for, `message` and those of `answers` are empty and `messages` is None.
    `quarantined`: given up, because no attempt could end it. `usage` are its tokens, and `reports`, where they are not summed
    up, are those of its service calls, as the backend reported them. `refused` is what of it is left out of the conversation
    because a backend refused it.
    """

    message: Message
    event: int
    messages: tuple[Message, ...] | None
    artifacts: tuple[StoredArtifact, ...] | None
    ended: bool
    answers: tuple[tuple[int, Message], ...] = ()
    quarantined: bool = False
    usage: Usage | None = None
    reports: tuple[Json, ...] = ()
    refused: Refused | None = None


class OpenTurn(msgspec.Struct, frozen=True):
    """A turn that has not ended, running or queued in any process. `waits` says that the turn waits for its caller."""

    turn: str
    task: str
    thread: str
    waits: bool = False


class TaskFilter(msgspec.Struct, frozen=True):
    """The filters of ListTasks. `after` is the pair (status_at, id) of the last task of the previous page."""

    context_id: str | None = None
    state: TaskState | None = None
    status_since: int | None = None
    after: tuple[int, str] | None = None


class PageLimits(msgspec.Struct, frozen=True):
    """What a page of tasks may hold: `tasks` tasks, each with the history of its `history` latest turns (None: of all), and
    with its artifacts or without. It ends with the task that brings it to `size` bytes of JSON. `numbers`: with the number of
    each task's latest event."""

    tasks: int
    size: int
    history: int | None = None
    artifacts: bool = False
    numbers: bool = False


class ListedTask(msgspec.Struct, frozen=True):
    """A task of a page, its turns, or why they cannot be read, and how many bytes of JSON it was read from. `last_event` is the
    number of its latest event, where that was asked for, else that of its record."""

    record: TaskRecord
    turns: tuple[TurnRecord, ...] | CorruptRecord
    size: int
    last_event: int


class TaskPage(msgspec.Struct, frozen=True):
    """The latest status first. `total` is the number of tasks on all pages, `more` says that another page follows."""

    tasks: tuple[ListedTask, ...]
    total: int
    more: bool


class TaskOwner(msgspec.Struct, frozen=True):
    """The owner of tasks at one agent. The empty one is first in order."""

    tenant: str = ""
    principal: str = ""
    agent: str = ""
