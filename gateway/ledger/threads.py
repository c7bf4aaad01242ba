"""Contexts and threads: records, and the commit points that change the state or handle of a thread."""

import msgspec

from gateway.a2a.model import Json
from gateway.ports.conversation import HandleKind, StorageOwner


class Caller(msgspec.Struct, frozen=True):
    """The owner of a row. `tenant` is '' where there is none."""

    principal: str
    tenant: str = ""


class ThreadRecord(msgspec.Struct, frozen=True):
    """One context on one agent's backend. `context` is the row's id, never the public one.

    `lost`: the backend does not know the handle any more; the thread can only continue in a new epoch.
    `unsynced`: the backend may have more than the ledger, because the outcome of a service call is unknown.
    `state_version`: the version of the adapter's schema of `adapter_state`. `adapter_secret`: the adapter's secret, sealed for
    this thread. `withdraws`: what an earlier call has left waiting at the backend is still to be withdrawn.
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
    adapter_secret: str | None = None
    withdraws: bool = False


class ContextRecord(msgspec.Struct, frozen=True):
    """A context and its live thread on one agent. The thread is None before the first message to that agent. `waiting`
    is the task whose turn waits for its caller on that thread; `stuck` is a task whose turn is quarantined and blocks
    the thread."""

    id: str
    public_id: str
    state: str
    thread: ThreadRecord | None
    waiting: str | None = None
    stuck: str | None = None


class MarkHandleLost(msgspec.Struct, frozen=True):
    """The backend has lost the thread's handle. The handle stays: nothing may continue without the earlier conversation."""

    thread: str
    generation: int


class MarkUnsynced(msgspec.Struct, frozen=True):
    """The outcome of a service call of this turn is unknown: it has to be looked up before the next request.

    Changes nothing where nothing can be looked up: no such call, no handle, or a history that the gateway keeps.
    """

    thread: str
    turn: str


class MarkSynced(msgspec.Struct, frozen=True):
    """The outcome of the unknown service call has been looked up."""

    thread: str
    generation: int


class ConfirmHandle(msgspec.Struct, frozen=True):
    """The conversation that a service call of unknown outcome has made is there: the thread continues from its handle, and
    the outcome stays unknown. Conflict when the thread has a handle."""

    thread: str
    generation: int
    handle: str


class BeginEpoch(msgspec.Struct, frozen=True):
    """The thread continues in its next epoch, from `handle`. `closed` is the id of the row that archives the previous
    epoch. `began_by` is the reason: the class of the error, or `adopted`.

    The live row keeps its id, with all items, turns and the lease.
    """

    thread: str
    generation: int
    closed: str
    owner: StorageOwner
    handle_kind: HandleKind
    handle: str | None
    began_by: str
    now: int


class Rewind(msgspec.Struct, frozen=True):
    """A thread returns to the handle at which the turn began; the handles of the turn are queued for deletion."""

    thread: str
    turn: str
    handle: str | None
    now: int


class Displace(msgspec.Struct, frozen=True):
    """The unended turns of the thread before this turn (`itself`: this turn too) are to be cancelled, and are no part of the
    conversation any more, unless they complete before the cancel."""

    thread: str
    turn: str
    itself: bool = False


class LeaveOut(msgspec.Struct, frozen=True):
    """A turn that failed is no part of the conversation any more, because its backend takes no request that answers the
    tool calls of the turn. Conflict when the turn did not fail."""

    turn: str


class RevertIfDisplaced(msgspec.Struct, frozen=True):
    """Follows the end of a turn: if the turn was displaced, a chain of handles returns to where the turn began, and the
    handles of the turn are queued for deletion."""

    thread: str
    turn: str
    now: int


class DeleteOrphan(msgspec.Struct, frozen=True):
    """Queues a handle that no turn continues from for deletion at the backend of this agent.

    Changes nothing where the call that has made it is still to be looked up: whoever does that continues from it, or queues it.
    """

    thread: str
    agent: str
    handle: str
    now: int


class KeepHandle(msgspec.Struct, frozen=True):
    """The thread continues from this handle: its queued deletion is removed."""

    thread: str
    handle: str


class Withdraw(msgspec.Struct, frozen=True):
    """Follows an end of the task that its agent did not bring about. What the last service call of the task has left waiting
    at its backend is queued to be withdrawn there, where that call is complete and has a name."""

    task: str
    now: int
