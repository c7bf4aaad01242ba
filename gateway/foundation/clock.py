"""Time and ids, injected wherever a decision needs them. Law: no other module asks the system for either."""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from gateway.foundation import ids

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


class Clock(msgspec.Struct, frozen=True):
    """`now` is milliseconds since the epoch, `monotonic` seconds, `new_id` has 122 random bits, 106 of them its own."""

    now: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = ids.uuid4
    row_id: Callable[[], str] = ids.row_id
    correlation_id: Callable[[], str] = lambda: secrets.token_hex(8)


def non_decreasing(clock: Clock, since: int) -> Clock:
    """The same clock for the times of one task: never before `since`, nor before a time that it gave already. The system's
    clock may be set back at any time."""
    latest = since

    def now() -> int:
        nonlocal latest
        latest = max(latest, clock.now())
        return latest

    return replace(clock, now=now)
