"""Tasks and what callers see of them: the records, and the commit points of events and endings."""

import msgspec

from gateway.a2a.model import Artifact, Message, TaskState


class TaskRecord(msgspec.Struct, frozen=True):
    """A task's row with its context's public id. `last_event`: its last event's number when its last turn ended."""

    id: str
    context: str
    context_id: str
    agent: str
    state: TaskState
    status_message: Message | None
    status_at: int
    last_event: int
    visible: bool


class EventRow(msgspec.Struct, frozen=True):
    """A group of neighbouring events of one task: numbers `first` to `last`, their A2A 1.0 JSON joined by newlines."""

    task: str
    first: int
    last: int
    payload: bytes


class Finish(msgspec.Struct, frozen=True):
    """C6: a turn ends. `state` None: the task goes on with the next accepted turn. Hits no row when the task has ended.

    `artifacts` and `messages` are the public record of this turn, as JSON arrays. `process`: who has the turn; it hits no
    row when another has taken it. None: whoever.
    """

    task: str
    turn: str
    thread: str
    status: str
    failure_class: str | None
    state: TaskState | None
    message: Message | None
    events: EventRow | None
    last_event: int
    artifacts: bytes
    messages: bytes
    visible: bool
    now: int
    process: str | None = None


class Close(msgspec.Struct, frozen=True):
    """A task that waits for its caller ends without another turn. Hits no row when it does not wait (any more)."""

    task: str
    state: TaskState
    event: EventRow | None
    last_event: int
    now: int


class Append(msgspec.Struct, frozen=True):
    """Events of a running turn that change nothing else."""

    events: EventRow


class StoredArtifact(msgspec.Struct, frozen=True):
    """An artifact as one turn left it; `append`: its parts follow those that an earlier turn made."""

    artifact: Artifact
    append: bool = False


class TurnRecord(msgspec.Struct, frozen=True):
    """One turn of a task for the public record: its message, then what it left, or None while it has not ended.

    `answers` are its further messages, each with the number of the first event behind it; they are in `messages`, too.
    `aside`: nobody could end it, and nobody tries any more.
    """

    message: Message
    event: int
    messages: tuple[Message, ...] | None
    artifacts: tuple[StoredArtifact, ...] | None
    ended: bool
    answers: tuple[tuple[int, Message], ...] = ()
    aside: bool = False


class OpenTurn(msgspec.Struct, frozen=True):
    """A turn that has not ended, wherever it runs or stands in a row. `waits`: for its caller."""

    turn: str
    task: str
    thread: str
    waits: bool = False


class TaskFilter(msgspec.Struct, frozen=True):
    """Of ListTasks. `after` is (status_at, id) of the last task of the page before."""

    context_id: str | None = None
    state: TaskState | None = None
    status_since: int | None = None
    after: tuple[int, str] | None = None


class TaskOwner(msgspec.Struct, frozen=True):
    """Whose tasks, and of which agent. The empty one stands before all others."""

    tenant: str = ""
    principal: str = ""
    agent: str = ""
