"""Contexts and their threads: the records, and the commit points that change where a thread stands."""

import msgspec

from gateway.a2a.model import Json
from gateway.ports.conversation import HandleKind, StorageOwner


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


class MarkHandleLost(msgspec.Struct, frozen=True):
    """The thread's handle leads nowhere any more; it stays, so that nothing goes on without what was said before."""

    thread: str
    generation: int


class MarkUnsynced(msgspec.Struct, frozen=True):
    """Nobody heard the end of a service call of this turn: before the next request it has to be looked up.

    Hits no row where there is nothing to look up: no such call, no handle for it, a history that the gateway keeps.
    """

    thread: str
    turn: str


class MarkSynced(msgspec.Struct, frozen=True):
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


class Displace(msgspec.Struct, frozen=True):
    """What stands on the thread before this turn (`itself`: up to it) and has not ended is to be cancelled, and is no part of
    the conversation any more, unless it is complete before it can be cancelled."""

    thread: str
    turn: str
    itself: bool = False


class RevertIfDisplaced(msgspec.Struct, frozen=True):
    """Goes behind the end of a turn: if that was displaced, a chain goes back to where it began, and the handles that it led
    to are left for deletion."""

    thread: str
    turn: str
    now: int


class DeleteOrphan(msgspec.Struct, frozen=True):
    """A handle from which nobody will go on: left for deletion at the backend of this agent."""

    thread: str
    agent: str
    handle: str
    now: int


class KeepHandle(msgspec.Struct, frozen=True):
    """The thread goes on from this handle, although somebody may have left it for deletion."""

    thread: str
    handle: str
