"""What the ledger keeps and how it changes: records that are read, commit points that are written.

Law: a commit point is one unit, all or nothing; it says what must be true of the rows that it finds (generation, state).
"""

import msgspec

from gateway.items import HandleKind, Item, StorageOwner
from gateway.model import Json, Message, TaskState


class Caller(msgspec.Struct, frozen=True):
    """Whose row it is. `tenant` is '' where there is none."""

    principal: str
    tenant: str = ""


class ThreadRecord(msgspec.Struct, frozen=True):
    """One context on one agent's backend. `context` is the row's id, never the public one."""

    id: str
    context: str
    agent: str
    epoch: int
    owner: StorageOwner
    handle_kind: HandleKind
    handle: str | None
    generation: int
    adapter_state: Json


class ContextRecord(msgspec.Struct, frozen=True):
    """A context and its live thread on one agent, None before the first message to that agent."""

    id: str
    public_id: str
    state: str
    thread: ThreadRecord | None


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


class IdempotencyKey(msgspec.Struct, frozen=True):
    """`kind` is `header` or `message_id`: two name spaces that never meet."""

    kind: str
    key: str


class NewItem(msgspec.Struct, frozen=True):
    """An item to append to the thread of its commit point. `tool_call`: the id of the NewToolCall that it belongs to.

    `unsent`: the completed call did not carry it, the next one has to.
    """

    item: Item
    provider_id: str | None = None
    tool_call: str | None = None
    replayable: bool = True
    unsent: bool = False


class NewToolCall(msgspec.Struct, frozen=True):
    """A tool call that the backend made itself, with its outcome. `id` is the public, gateway-made one."""

    id: str
    sequence: int
    external_id: str
    name: str
    arguments: str
    executor: str
    status: str
    outcome: Json


class Accept(msgspec.Struct, frozen=True):
    """C1: one accepted message. `context_public` is None where the context exists.

    `working`: the new task begins at once, as C2 in the same unit says; else it is submitted. `process` will run it.
    """

    caller: Caller
    agent: str
    now: int
    context_row: str
    context_public: str | None
    thread: ThreadRecord
    new_thread: bool
    task: str
    new_task: bool
    visible: bool
    turn: str
    message: Message
    digest: str
    key: IdempotencyKey | None
    event: EventRow | None
    last_event: int
    working: bool = False
    process: str = ""


class Prepare(msgspec.Struct, frozen=True):
    """C2: a service call is about to be made, by the holder of the thread's lease."""

    thread: str
    generation: int
    holder: str
    lease_until: int
    turn: str
    task: str
    service_call: str
    round: int
    attempt: int
    handle_in: str | None
    now: int
    event: EventRow | None


class Pending(msgspec.Struct, frozen=True):
    """Between C2 and C3: the backend has named the handle that this call may lead to."""

    service_call: str
    handle: str


class Complete(msgspec.Struct, frozen=True):
    """C3: a service call is over and counts. `sent` are the positions of the items that its request carried."""

    thread: str
    generation: int
    turn: str
    service_call: str
    handle_in: str | None
    handle_out: str | None
    state: Json
    usage: Json
    items: tuple[NewItem, ...]
    tool_calls: tuple[NewToolCall, ...]
    sent: tuple[int, ...]
    now: int


class Fail(msgspec.Struct, frozen=True):
    """A service call is over and does not count: the handle stays. `items` hold what was said, not replayable."""

    thread: str
    generation: int
    turn: str
    service_call: str
    status: str
    error_class: str
    items: tuple[NewItem, ...]
    now: int


class Finish(msgspec.Struct, frozen=True):
    """C6: a turn ends. `state` None: the task goes on with the next accepted turn. Hits no row when the task has ended.

    `artifacts` and `messages` are the public record of this turn, as JSON arrays.
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


class Renew(msgspec.Struct, frozen=True):
    """The holder lives: the leases that it has on these threads run until `lease_until`."""

    threads: tuple[str, ...]
    holder: str
    lease_until: int


class Release(msgspec.Struct, frozen=True):
    """The holder has nothing more to run on this thread."""

    thread: str
    holder: str


class Fence(msgspec.Struct, frozen=True):
    """Takes the lease from a holder that let it run out: what that one still wants to store comes too late."""

    thread: str
    generation: int
    now: int


class Beat(msgspec.Struct, frozen=True):
    """The process lives, and with it the turns that wait there, until `alive_until`."""

    process: str
    alive_until: int
    now: int


class AskCancel(msgspec.Struct, frozen=True):
    """The process that has these turns is to cancel them. A turn that has ended is left alone."""

    turns: tuple[str, ...]


class DeleteContext(msgspec.Struct, frozen=True):
    """C7: all that was said in a context goes, and its threads move on, so that what still runs there comes too late.

    The row stays as a tombstone: its public id is never used again. Every handle that a backend named is left for
    deletion there. Hits no row when the context is deleted already.
    """

    caller: Caller
    context: str
    now: int


CommitPoint = (
    Accept
    | Prepare
    | Pending
    | Complete
    | Fail
    | Finish
    | Close
    | Append
    | Renew
    | Release
    | Fence
    | Beat
    | AskCancel
    | DeleteContext
)


class Conflict(Exception):
    """A commit point did not find the rows as it expected them. Nothing of its unit was stored."""


class LedgerUnavailable(Exception):
    """The database cannot take or give anything now."""


class CorruptRecord(Exception):
    """What is stored of one thread or task, which the text names, cannot be read. Others are not affected."""


class TurnRecord(msgspec.Struct, frozen=True):
    """One turn of a task for the public record: its message, then what it left, or None while it has not ended."""

    message: Message
    event: int
    messages: tuple[Message, ...] | None
    artifacts: tuple[Json, ...] | None
    ended: bool


class UnfinishedTurn(msgspec.Struct, frozen=True):
    """A turn that nobody ended and nobody else runs. `expired`: its process let the lease run out."""

    turn: str
    thread: str
    generation: int
    task: TaskRecord
    caller: Caller
    expired: bool = True


class OpenTurn(msgspec.Struct, frozen=True):
    """A turn that has not ended, wherever it runs or waits."""

    turn: str
    task: str
    thread: str


class TaskFilter(msgspec.Struct, frozen=True):
    """Of ListTasks. `after` is (status_at, id) of the last task of the page before."""

    context_id: str | None = None
    state: TaskState | None = None
    status_since: int | None = None
    after: tuple[int, str] | None = None


class Replay(msgspec.Struct, frozen=True):
    """What an idempotency key already led to."""

    task: str
    digest: str
