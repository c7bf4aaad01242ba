"""Deletion and expiry of contexts and tasks, deletions and withdrawals at backends: commit points and records."""

import msgspec

from gateway.ledger.threads import Caller


class DeleteContext(msgspec.Struct, frozen=True):
    """C7: a context becomes a tombstone; the new generation of its threads makes commits of running turns Conflicts.

    The context cannot be read any more, and its public id is never used again. The first rows of its conversation are
    deleted at once, the others by PurgeContext, with a job for every handle that a backend named. Conflict when the
    context is deleted already.
    """

    caller: Caller
    context: str
    now: int


class ExpireContext(msgspec.Struct, frozen=True):
    """A context that was not used since `idle_before` becomes a tombstone; PurgeContext deletes its rows.

    Conflict when it was used meanwhile.
    """

    context: str
    idle_before: int
    now: int


class PurgeContext(msgspec.Struct, frozen=True):
    """Deletes a limited number of rows of a tombstone, with a job for each handle in them."""

    context: str
    now: int


class ExpireTasks(msgspec.Struct, frozen=True):
    """Deletes the events of ended tasks; with `records` also all that GetTask returns, and their idempotency keys.

    The conversation of the tasks does not change.
    """

    tasks: tuple[str, ...]
    records: bool


class MoveDeletion(msgspec.Struct, frozen=True):
    """A deletion that was due at `due_at` is next due at `until`, or given up (None). Conflict when another process has it."""

    job: str
    due_at: int
    until: int | None
    attempts: int


class EndDeletion(msgspec.Struct, frozen=True):
    """A deletion is done, or impossible. Conflict when another process has it."""

    job: str
    due_at: int


class Deletion(msgspec.Struct, frozen=True):
    """A handle to delete at the backend of `agent`."""

    job: str
    agent: str
    handle: str
    due_at: int
    attempts: int


class MoveWithdrawal(msgspec.Struct, frozen=True):
    """A withdrawal that was due at `due_at` is next due at `until`. Conflict when another process has it."""

    job: str
    due_at: int
    until: int
    attempts: int


class EndWithdrawal(msgspec.Struct, frozen=True):
    """What was to be withdrawn waits no more, or is given up. It may be done already."""

    job: str
    thread: str


class Withdrawal(msgspec.Struct, frozen=True):
    """What the call `run` of a thread has left waiting at the backend of `agent`, in its conversation `handle`."""

    job: str
    agent: str
    thread: str
    handle: str
    run: str
    due_at: int
    attempts: int


class EndedTask(msgspec.Struct, frozen=True):
    """A public task that has ended. `logged` says that its events are still stored."""

    id: str
    status_at: int
    logged: bool


class AgedContext(msgspec.Struct, frozen=True):
    """The facts of a context that retention uses. `idle` says that the context is open and was unused for too long,
    `purge_pending` that it is a tombstone that still has rows."""

    id: str
    caller: Caller
    public_id: str
    created_at: int
    idle: bool
    purge_pending: bool
