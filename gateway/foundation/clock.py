"""Time and ids, injected wherever a decision needs them. Law: nothing else asks the system for either.

Whether the system's clock was set. Law: when it was, nobody's lease tells anything until its holder had the time to renew
it: the clock is the same for all processes of the machine, and each of them renews by its own waits, not by the clock.
"""

import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec
import structlog
from msgspec.structs import replace

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def timestamp(milliseconds: int) -> str:
    """Milliseconds since the epoch as A2A writes them: UTC, three decimals, `Z`. Source: A2A 1.0, section 5.6.1."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def milliseconds(text: str) -> int:
    """The reverse of `timestamp`, for any ISO 8601 time with an offset. Raises: ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no UTC offset")
    return (moment - _EPOCH) // _MILLISECOND


_CHUNK = 16
_ALIKE = 2
_AT_ONCE = 1024 * _CHUNK
_chunks: deque[bytes] = deque()
# A child would give out what its parent does.
os.register_at_fork(after_in_child=_chunks.clear)


def _random() -> bytes:
    """16 random bytes. The system is asked for many at once: asking lets another thread have the interpreter, and whoever
    asks then waits for it; that was an eighth of what a turn costs.

    Those of one asking begin with the same two: what is made together stands together in every index.
    """
    try:
        return _chunks.popleft()
    except IndexError:
        fresh = os.urandom(_AT_ONCE)
        alike = fresh[:_ALIKE]
        _chunks.extend(alike + fresh[at + _ALIKE : at + _CHUNK] for at in range(_CHUNK, _AT_ONCE, _CHUNK))
        return fresh[:_CHUNK]


def _uuid4() -> str:
    """Source: RFC 9562, section 5.4. By hand, because `uuid.UUID` takes four times as long, ten times a turn."""
    digits = _random().hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class Clock(msgspec.Struct, frozen=True):
    """`now` is milliseconds since the epoch, `monotonic` seconds, `new_id` 122 random bits, 106 of them its own.

    `row_id` is for rows that callers never see: it begins with the time, so that new rows stand together on disk.
    """

    now: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = _uuid4
    row_id: Callable[[], str] = lambda: f"{time.time_ns():016x}{_random()[8:].hex()}"
    correlation_id: Callable[[], str] = lambda: secrets.token_hex(8)


def onwards(clock: Clock, since: int) -> Clock:
    """For the times that one task tells: the same clock, but what it says is never before `since`, nor before what it has
    said. The system's clock may be set back at any time."""
    latest = since

    def now() -> int:
        nonlocal latest
        latest = max(latest, clock.now())
        return latest

    return replace(clock, now=now)


log = structlog.get_logger("gateway.foundation.clock")

_ROUNDS = 3
"""Of the upkeep: as many as a lease outlives when its holder is late."""


@dataclass(slots=True)
class ClockSteps:
    """`tolerance`: seconds by which the clock may differ from one round to the next."""

    clock: Clock
    tolerance: float
    _ahead: float = field(init=False)
    _rounds: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._ahead = self._measured()

    def recent(self) -> bool:
        """To be asked once in each round. It was set in this round or in one of the last."""
        before, self._ahead = self._ahead, self._measured()
        step = self._ahead - before
        if abs(step) > self.tolerance:
            log.warning("clock.set", seconds=round(step, 1))
            self._rounds = _ROUNDS
        elif self._rounds:
            self._rounds -= 1
        return self._rounds > 0

    def _measured(self) -> float:
        """By how many seconds it is ahead of one that nobody sets."""
        return self.clock.now() / 1000 - self.clock.monotonic()
