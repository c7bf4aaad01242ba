"""Which process runs which turn: leases of threads, heartbeats of processes, takeover of the turns of dead processes."""

import msgspec

from gateway.ledger.tasks import TaskRecord
from gateway.ledger.threads import Caller

LONGEST_LEASE = 1_200_000
"""Milliseconds. A lease that ends later than that was written before the system's clock was set back, and does not count."""

TRIES = 4
"""How often an orphaned turn is tried: three times, and a last time with the minimum of reads that ending it needs."""


class TakeOver(msgspec.Struct, frozen=True):
    """A turn whose process died continues in this process, in the same service call, on the holder's lease. `tries` is
    the number of takeovers so far, until it is known that this process survives the turn."""

    thread: str
    generation: int
    holder: str
    lease_until: int
    turn: str
    now: int
    tries: int = 0


class CountTries(msgspec.Struct, frozen=True):
    """Counts an attempt to continue or to end an orphaned turn. Conflict when the stored count is not `before`, or the turn
    has ended."""

    turn: str
    before: int
    tries: int


class TakeTriesBack(msgspec.Struct, frozen=True):
    """So many attempts no longer count; none does where there were no more. An ended turn does not change."""

    turn: str
    number: int


class Claim(msgspec.Struct, frozen=True):
    """A queued turn of the dead process `previous_process` is queued in this process. Conflict when another process has it, or
    the previous one lives."""

    turn: str
    previous_process: str
    process: str
    now: int


class Renew(msgspec.Struct, frozen=True):
    """The holder's leases of these threads last until `lease_until`."""

    threads: tuple[str, ...]
    holder: str
    lease_until: int


class Release(msgspec.Struct, frozen=True):
    """The holder gives up its lease of this thread."""

    thread: str
    holder: str


class Fence(msgspec.Struct, frozen=True):
    """Takes the lease from a holder that let it expire: later commits of that holder are Conflicts."""

    thread: str
    generation: int
    now: int


class Heartbeat(msgspec.Struct, frozen=True):
    """The process, with the turns that are queued there, counts as alive until `alive_until`."""

    process: str
    alive_until: int
    now: int


class RequestCancel(msgspec.Struct, frozen=True):
    """Asks the process of these turns to cancel them; a quarantined turn may be tried once more. Ended turns do not change."""

    turns: tuple[str, ...]


class UnfinishedTurn(msgspec.Struct, frozen=True):
    """A turn that has not ended and that no living process runs. `expired` says that the lease of its process has
    expired, `waits` that the turn is queued. `process` is the process that had the turn; `cancel_asked` says that a
    cancel was requested there. `tries` has the meaning that it has in CountTries."""

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
