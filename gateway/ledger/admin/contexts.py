"""Contexts with their threads, handles and tasks, for operators. Law: an id that names a row is `id` or ends in the name of its
table; times are milliseconds since 1970."""

from enum import StrEnum

import msgspec

from gateway.a2a.model import TaskState
from gateway.ledger.states import ServiceCallStatus, TurnStatus
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ports.conversation import HandleKind, StorageOwner


class Standing(StrEnum):
    """How a context stands, the worst first: the worst that is to be said of it. LOST, UNSYNCED: a thread of it is. FAILED: its
    latest turn has failed. WAITING: a task of it waits for its caller. WORKING: one of its turns runs or is queued. ENDED: it
    is a tombstone, of which nothing else is said."""

    LOST = "lost"
    UNSYNCED = "unsynced"
    FAILED = "failed"
    WAITING = "waiting"
    WORKING = "working"
    IDLE = "idle"
    ENDED = "ended"


class ContextFilter(msgspec.Struct, frozen=True):
    """What a list of contexts holds; None is no filter, but for `standing`: all that have not ENDED. `principal` and `agent`
    are whole names. `since` and `until` bound the time at which the latest message was accepted. `text`, at most 200
    characters, is looked for in what callers and agents said, in any turn, without regard to the case of ASCII letters."""

    agent: str | None = None
    principal: str | None = None
    standing: Standing | None = None
    since: int | None = None
    until: int | None = None
    text: str | None = None


class ListedThread(msgspec.Struct, frozen=True):
    """A live thread of a listed context. `turns` is the number of its latest turn."""

    id: str
    agent: str
    owner: StorageOwner
    epoch: int
    state: str
    turns: int


class ListedTurn(msgspec.Struct, frozen=True):
    """The latest turn of a listed context, or with a text the latest that has it. `words` are at most 600 characters of its
    first message, or around the text; empty where they cannot be read."""

    id: str
    task: str
    agent: str
    number: int
    status: TurnStatus
    failure_class: str | None
    accepted_at: int
    words: str


class ListedContext(msgspec.Struct, frozen=True):
    """`turn` is None for a context that nobody has sent a message to, such as one that was adopted."""

    id: str
    public_id: str
    principal: str
    state: str
    created_at: int
    last_used_at: int
    standing: Standing
    threads: tuple[ListedThread, ...]
    turn: ListedTurn | None


class ContextPage(msgspec.Struct, frozen=True):
    """Contexts, that with the latest turn first. `before` gives the next page; None: there is none. `searched_to` is the time
    of the oldest turn that was looked at, where time ran out before the page was full."""

    contexts: tuple[ListedContext, ...]
    before: str | None
    searched_to: int | None = None


class ThreadMap(msgspec.Struct, frozen=True):
    """A thread, or the archive of an epoch of it. `archived`: the epoch is over; then `id` is that of the archive, and turns
    and calls stay with the live row. `began_by` says in a word why the epoch began. `lease_holder` is the process that runs
    its turn, until `lease_until`. `withdrawals` are still to be made at the backend."""

    id: str
    agent: str
    epoch: int
    archived: bool
    owner: StorageOwner
    handle_kind: HandleKind
    handle: str | None
    clean_handle: str | None
    generation: int
    state: str
    turns: int
    began_at: int | None
    began_by: str | None
    lease_holder: str | None
    lease_until: int | None
    withdrawals: int


class Approval(msgspec.Struct, frozen=True):
    """An approval that stands for every call of a tool in the context; `tool_call` is the call to which it was given."""

    tool_call: str
    tool: str
    server: str | None
    by: str | None
    at: int | None


class ContextMap(msgspec.Struct, frozen=True):
    """A context with its threads, the live ones first, then earlier epochs, the latest first; `cut` says that there are more
    than the 100 that are shown of threads or of approvals."""

    id: str
    public_id: str
    tenant: str
    principal: str
    state: str
    created_at: int
    last_used_at: int
    threads: tuple[ThreadMap, ...]
    approvals: tuple[Approval, ...]
    cut: bool = False


class ThreadTurn(msgspec.Struct, frozen=True):
    """A turn of a thread and its task. `visible` is false while, or because, its message is answered with a bare message.
    `correlation_id` is told to the caller of a turn that failed. `words` are at most 200 characters of its first message;
    empty where they cannot be read."""

    id: str
    number: int
    task: str
    task_state: TaskState
    visible: bool
    status: TurnStatus
    failure_class: str | None
    displaced: bool
    tries: int
    accepted_at: int
    started_at: int | None
    ended_at: int | None
    correlation_id: str | None
    words: str


class ThreadTurns(msgspec.Struct, frozen=True):
    """At most 100 turns of a thread, the latest first. `before` gives the next page; None: there is none."""

    turns: tuple[ThreadTurn, ...]
    before: int | None


class QueuedDeletion(msgspec.Struct, frozen=True):
    """The deletion of a handle at its backend that was not made yet. `due_at` None: it was given up after `attempts`."""

    due_at: int | None
    attempts: int


class HandleStep(msgspec.Struct, frozen=True):
    """A service call of a thread as far as it concerns handles, with its turn; `core.diagnosis.moves` tells what it means.

    `before` is the handle from which it continued, `pending` the one that the backend named while it ran, `after` the confirmed
    one. `deletion_before` and `deletion_after` are those of `before`, and of `after` or else of `pending`.
    `displaced` says that the turn is not part of the conversation.
    """

    call: str
    turn: str
    task: str
    number: int
    round: int
    attempt: int
    status: ServiceCallStatus
    error_class: str | None
    prepared_at: int
    ended_at: int | None
    before: str | None
    pending: str | None
    after: str | None
    run: str | None
    turn_status: TurnStatus
    failure_class: str | None
    turn_ended_at: int | None
    displaced: bool
    deletion_before: QueuedDeletion | None = None
    deletion_after: QueuedDeletion | None = None


class StepKey(msgspec.Struct, frozen=True, array_like=True):
    """The place of a service call in its thread: numbers of turn, round and try."""

    number: int
    round: int
    attempt: int


class HandleSteps(msgspec.Struct, frozen=True):
    """At most 100 service calls of a thread, the latest first, and `ahead`, the one behind them, where this is not the first
    page. `epochs` are the thread itself and the archives of its earlier epochs, at most 100, the latest first. `before` gives
    the next page; None: there is none."""

    thread: ThreadMap
    epochs: tuple[ThreadMap, ...]
    steps: tuple[HandleStep, ...]
    ahead: HandleStep | None
    before: StepKey | None


class PlaceKind(StrEnum):
    """What an id was found as."""

    CONTEXT = "context"
    THREAD = "thread"
    TASK = "task"
    TURN = "turn"
    MESSAGE = "message"
    CALL = "call"
    TOOL_CALL = "tool_call"
    HANDLE = "handle"
    TRACE = "trace"
    FAILURE = "failure"
    KEY = "key"


class Place(msgspec.Struct, frozen=True):
    """Where an id belongs. `context` is the row of its context and `principal` its owner, empty for a key; `task` and `turn`
    where there is one. `name` is the id of the row that has it: of the call for a handle, the name of the key."""

    kind: PlaceKind
    name: str
    context: str = ""
    agent: str = ""
    task: str = ""
    turn: str = ""
    principal: str = ""


class Places(msgspec.Struct, frozen=True):
    """At most 20 places. Handles, ids that backends gave to tool calls, trace ids and correlation ids of failures are looked
    for from the latest turn back, until time runs out: `searched_to` then says how far, and `before` goes on from there."""

    places: tuple[Place, ...]
    before: str | None = None
    searched_to: int | None = None


class Continuation(msgspec.Struct, frozen=True):
    """From where the next message to an agent would continue: its live thread, and the latest turn of it, where there is one.
    What it would send is read by `ThreadReads` and projected by `core.history`."""

    context_id: str
    owner: Caller
    thread: ThreadRecord
    turn: str | None
