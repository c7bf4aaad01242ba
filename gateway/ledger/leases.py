"""Who runs what: leases of threads, lives of processes, and what the dead ones left."""

import msgspec

from gateway.ledger.tasks import TaskRecord
from gateway.ledger.threads import Caller

LONGEST_LEASE = 1_200_000
"""Milliseconds. What runs out later than that was written before the system's clock was set back, and tells nothing."""


TRIES = 4
"""So often may a turn that was left be tried: three times, and a last time without all that need not be read to end it."""


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


class Heartbeat(msgspec.Struct, frozen=True):
    """The process lives, and with it the turns that wait there, until `alive_until`."""

    process: str
    alive_until: int
    now: int


class RequestCancel(msgspec.Struct, frozen=True):
    """The process that has these turns is to cancel them; what was put aside may be tried once more. A turn that has ended is
    left alone."""

    turns: tuple[str, ...]


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
