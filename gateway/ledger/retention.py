"""What is deleted or over its time: the commit points that take it away, and what is read to find it."""

import msgspec

from gateway.ledger.threads import Caller


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


class Deletion(msgspec.Struct, frozen=True):
    """A handle that the adapter of `agent` has to let its backend forget."""

    job: str
    agent: str
    handle: str
    due_at: int
    attempts: int


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
