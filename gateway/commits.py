"""What the ledger keeps and how it changes: records that are read, commit points that are written.

Law: a commit point is one unit, all or nothing; it says what must be true of the rows that it finds (generation, state).
"""

import msgspec

from gateway.api_keys import IssueKey, RevokeKey
from gateway.items import HandleKind, Item, StorageOwner
from gateway.model import Artifact, Json, Message, TaskState
from gateway.portable import ContextDocument
from gateway.push_records import PushPoint

LONGEST_LEASE = 1_200_000
"""Milliseconds. What runs out later than that was written before the system's clock was set back, and tells nothing."""


class Caller(msgspec.Struct, frozen=True):
    """Whose row it is. `tenant` is '' where there is none."""

    principal: str
    tenant: str = ""


class ThreadRecord(msgspec.Struct, frozen=True):
    """One context on one agent's backend. `context` is the row's id, never the public one.

    `lost`: the backend does not know the handle any more, so that the thread can only go on in a new epoch.
    `unsynced`: the backend may hold more than the ledger knows, because nobody heard the end of a service call.
    `state_version` is that of the adapter's schema which wrote `adapter_state`.
    """

    id: str
    context: str
    agent: str
    epoch: int
    owner: StorageOwner
    handle_kind: HandleKind
    handle: str | None
    generation: int
    adapter_state: Json
    lost: bool = False
    state_version: int = 1
    unsynced: bool = False


class ContextRecord(msgspec.Struct, frozen=True):
    """A context and its live thread on one agent, None before the first message to that agent. `waiting`: the task whose
    turn waits on that thread for its caller; `stuck`: one whose turn is put aside, so that nothing goes on behind it."""

    id: str
    public_id: str
    state: str
    thread: ThreadRecord | None
    waiting: str | None = None
    stuck: str | None = None


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
    """A tool call of a completed service call; `outcome` is that of one that has ended. `id` is the public one.

    `asked`: it needs a yes before it runs; `digest` is of what that yes is for. `expires_at`: nobody waits longer for its
    caller. `server`: where the tool is, as callers see it. `runs_left`: so often may it be started in all.
    """

    id: str
    sequence: int
    external_id: str
    name: str
    arguments: str
    executor: str
    status: str
    outcome: Json
    asked: bool = False
    digest: str | None = None
    expires_at: int | None = None
    server: str | None = None
    runs_left: int = 1


class Preferences(msgspec.Struct, frozen=True):
    """How the sender of a message wants its answer: in these media types, with these extensions."""

    modes: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()


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
    preferences: Preferences = Preferences()


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
    """C3: a service call is over and counts. `sent` are the positions of the items that its request carried.

    `weight` is that of the whole request, where the tokens in `usage` are those of it and nothing else. `state_version` is
    that of the schema of `state`.
    """

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
    weight: int | None = None
    state_version: int = 1


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


class ToolStarts(msgspec.Struct, frozen=True):
    """C4: a tool call is about to run. Its approval, where it needed one, is used up by this.

    Hits no row when it runs already, has ended, or may not run.
    """

    thread: str
    generation: int
    tool_call: str
    now: int


class ToolEnds(msgspec.Struct, frozen=True):
    """C5: a tool call has its outcome. Hits no row when it had one already."""

    thread: str
    generation: int
    turn: str
    service_call: str
    tool_call: str
    status: str
    outcome: Json
    item: NewItem


class TakeOver(msgspec.Struct, frozen=True):
    """A turn whose process died goes on here, in the service call that it was in, on the holder's lease. `tries`: how often
    that was tried in vain, as far as it is not known yet that this process outlives it."""

    thread: str
    generation: int
    holder: str
    lease_until: int
    turn: str
    now: int
    tries: int = 0


class CountTries(msgspec.Struct, frozen=True):
    """So often has somebody begun to go on with a turn that was left, or to end it, and come to no end. Hits no row when it
    was not tried `before` as often as that, or has ended."""

    turn: str
    before: int
    tries: int


class Claim(msgspec.Struct, frozen=True):
    """A turn that waits for its place, and whose process `left_by` died, waits in this process. Hits no row when another has
    it by now, or that one lives."""

    turn: str
    left_by: str
    process: str
    now: int


class Suspend(msgspec.Struct, frozen=True):
    """A turn waits for its caller: it has open calls that need a decision or a result. The task says so; without `message`
    the turn has all its answers, and only waits to be taken up."""

    task: str
    turn: str
    thread: str
    state: TaskState
    message: Message | None
    events: EventRow | None
    now: int


class Resume(msgspec.Struct, frozen=True):
    """A turn that waited goes on, on the holder's lease. `process` runs it."""

    thread: str
    generation: int
    holder: str
    lease_until: int
    turn: str
    task: str
    now: int
    event: EventRow | None


class Verdict(msgspec.Struct, frozen=True):
    """The decision on a tool call: `approved`, `rejected` or `expired`, and who made it. `digest` is of what was asked.

    `always`: it holds for every call of this tool that the context sees.
    """

    tool_call: str
    digest: str | None
    decision: str
    by: str | None
    always: bool = False


class GivenAnswer(msgspec.Struct, frozen=True):
    """A message to a turn that waits, as its input number `ordinal`. `event`: the number of the first event behind it.

    `items`: what it says to the model besides.
    """

    message: Message
    ordinal: int
    digest: str
    key: IdempotencyKey | None
    event: int
    items: tuple[Item, ...] = ()


class Decide(msgspec.Struct, frozen=True):
    """C1 of a message to a turn that waits, or the end of its patience (without `answer`). `context` is the row's id.

    It goes with the ends of the calls that this settles. `question`: what the task still asks; `goes_on`: it asks nothing
    any more. Hits no row when the turn waits no more, is another caller's, or a call was decided, or is not what was
    asked about.
    """

    caller: Caller
    agent: str
    context: str
    thread: str
    generation: int
    task: str
    turn: str
    answer: GivenAnswer | None
    verdicts: tuple[Verdict, ...]
    question: Message | None
    goes_on: bool
    now: int


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


class Lose(msgspec.Struct, frozen=True):
    """The thread's handle leads nowhere any more; it stays, so that nothing goes on without what was said before."""

    thread: str
    generation: int


class Unsync(msgspec.Struct, frozen=True):
    """Nobody heard the end of a service call of this turn: before the next request it has to be looked up.

    Hits no row where there is nothing to look up: no such call, no handle for it, a history that the gateway keeps.
    """

    thread: str
    turn: str


class Synced(msgspec.Struct, frozen=True):
    """What became of the service call whose end nobody heard has been looked up."""

    thread: str
    generation: int


class BeginEpoch(msgspec.Struct, frozen=True):
    """The thread goes on in its next epoch, from `handle`. `closed`: the row that keeps the epoch that ends.

    The live row keeps its id, with all items, turns and the lease.
    """

    thread: str
    generation: int
    closed: str
    owner: StorageOwner
    handle_kind: HandleKind
    handle: str | None


class Rewind(msgspec.Struct, frozen=True):
    """A thread goes back to the handle at which the turn began; those that the turn led to are left for deletion."""

    thread: str
    turn: str
    handle: str | None
    now: int


class Orphan(msgspec.Struct, frozen=True):
    """A handle from which nobody will go on: left for deletion at the backend of this agent."""

    thread: str
    agent: str
    handle: str
    now: int


class Keep(msgspec.Struct, frozen=True):
    """The thread goes on from this handle, although somebody may have left it for deletion."""

    thread: str
    handle: str


class DeleteContext(msgspec.Struct, frozen=True):
    """C7: a context becomes a tombstone, and its threads move on, so that what still runs there comes too late.

    Nothing of it can be read any more, and its public id is never used again. What was said in it goes, the first piece
    of a long conversation at once and the others by PurgeContext, with a job for every handle that a backend named.
    Hits no row when the context is deleted already.
    """

    caller: Caller
    context: str
    now: int


class ExpireContext(msgspec.Struct, frozen=True):
    """A context that nobody used since `idle_before` ends as a deleted one does; what was said in it goes piece by piece.

    Hits no row when it was used meanwhile.
    """

    context: str
    idle_before: int
    now: int


class PurgeContext(msgspec.Struct, frozen=True):
    """Takes away a piece of what is left of a buried context, with a job for each handle that is in it."""

    context: str
    now: int


class ExpireTasks(msgspec.Struct, frozen=True):
    """Tasks that have ended lose their events; with `records` also all that GetTask tells of them, and their keys.

    The conversation that they are a part of stays as it is.
    """

    tasks: tuple[str, ...]
    records: bool


class MoveDeletion(msgspec.Struct, frozen=True):
    """A deletion that was due at `due_at` is next due at `until`, or given up (None). Hits no row when another has it."""

    job: str
    due_at: int
    until: int | None
    attempts: int


class EndDeletion(msgspec.Struct, frozen=True):
    """A deletion is done, or cannot be. Hits no row when another has it."""

    job: str
    due_at: int


class Adopt(msgspec.Struct, frozen=True):
    """A new context whose first message goes on from the handle of its thread. Hits a row when the public id is taken."""

    caller: Caller
    context_public: str
    thread: ThreadRecord
    now: int


class Import(msgspec.Struct, frozen=True):
    """A context of another database, which now is the caller's."""

    caller: Caller
    document: ContextDocument
    now: int


CommitPoint = (
    Accept
    | Prepare
    | Pending
    | Complete
    | Fail
    | ToolStarts
    | ToolEnds
    | TakeOver
    | Claim
    | CountTries
    | Suspend
    | Resume
    | Decide
    | Finish
    | Close
    | Append
    | Renew
    | Release
    | Lose
    | Unsync
    | Synced
    | BeginEpoch
    | Rewind
    | Orphan
    | Keep
    | Fence
    | Beat
    | AskCancel
    | DeleteContext
    | ExpireContext
    | PurgeContext
    | ExpireTasks
    | MoveDeletion
    | EndDeletion
    | Adopt
    | Import
    | IssueKey
    | RevokeKey
    | PushPoint
)


class Conflict(Exception):
    """A commit point did not find the rows as it expected them. Nothing of its unit was stored."""


class LedgerUnavailable(Exception):
    """The database cannot take or give anything now. `trouble` is why, in a word: full, locked, read-only, ..."""

    def __init__(self, text: str, trouble: str = "unavailable") -> None:
        super().__init__(text)
        self.trouble = trouble


class CorruptRecord(Exception):
    """What is stored of one thread or task, which the text names, cannot be read. Others are not affected."""


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


class UnfinishedTurn(msgspec.Struct, frozen=True):
    """A turn that nobody ended and nobody else runs. `expired`: its process let the lease run out. `waits`: it has not begun.
    `process` is the one that had it; `cancel_asked`: it was to be cancelled there. `tries` as in CountTries."""

    turn: str
    thread: str
    generation: int
    task: TaskRecord
    caller: Caller
    expired: bool = True
    waits: bool = False
    process: str = ""
    cancel_asked: bool = False
    tries: int = 0


class ToolCallRecord(msgspec.Struct, frozen=True):
    """A tool call of a turn. `round` is the number of its service call, `at` when that was complete.

    `server` and `runs_left` as in NewToolCall; each start has taken one.
    """

    id: str
    service_call: str
    round: int
    at: int
    sequence: int
    external_id: str
    name: str
    arguments: str
    executor: str
    status: str
    server: str | None = None
    runs_left: int = 0


class UnheardCall(msgspec.Struct, frozen=True):
    """The latest service call of a thread whose end nobody heard. `pending`: the handle that its backend named."""

    id: str
    turn: str
    round: int
    handle_in: str | None
    pending: str | None


class LatestCall(msgspec.Struct, frozen=True):
    """The last service call that a turn has made. `base`: the handle at which the turn began. `restarts`: how many of its
    calls were made again because their process died. `asked`: for tools that the backend does not run."""

    id: str
    round: int
    attempt: int
    status: str
    pending: str | None
    base: str | None
    restarts: int
    asked: bool


class EarlierToolCall(msgspec.Struct, frozen=True):
    """What a tool call of the same external id was, and what came of it."""

    name: str
    arguments: str
    status: str
    outcome: Json


class AskedCall(msgspec.Struct, frozen=True):
    """A tool call of a turn that waits or waited, as its caller was asked about it. `decision` as in Verdict.

    `expires_at` None: nobody has to answer. `outcome` is None while `call.status` is an open one.
    """

    call: ToolCallRecord
    digest: str | None
    decision: str | None
    expires_at: int | None
    outcome: Json


class WaitingTurn(msgspec.Struct, frozen=True):
    """A turn that waits for its caller. `inputs` is the number of messages that it has, `base` the handle at which it
    began, `calls` are those of its last service call."""

    turn: str
    thread: str
    inputs: int
    base: str | None
    calls: tuple[AskedCall, ...]


class OpenTurn(msgspec.Struct, frozen=True):
    """A turn that has not ended, wherever it runs or stands in a row. `waits`: for its caller."""

    turn: str
    task: str
    thread: str
    waits: bool = False


class MeasuredCall(msgspec.Struct, frozen=True):
    """What a completed service call carried, and what its backend says that it used."""

    weight: int | None
    usage: Json


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


class Deletion(msgspec.Struct, frozen=True):
    """A handle that the adapter of `agent` has to let its backend forget."""

    job: str
    agent: str
    handle: str
    due_at: int
    attempts: int


class TaskOwner(msgspec.Struct, frozen=True):
    """Whose tasks, and of which agent. The empty one stands before all others."""

    tenant: str = ""
    principal: str = ""
    agent: str = ""


class EndedTask(msgspec.Struct, frozen=True):
    """A public task that has ended. `logged`: its events are there."""

    id: str
    status_at: int
    logged: bool


class AgedContext(msgspec.Struct, frozen=True):
    """A context as retention sees it. `idle`: open and not used for so long; `left`: buried, and not purged yet."""

    id: str
    caller: Caller
    public_id: str
    created_at: int
    idle: bool
    left: bool
