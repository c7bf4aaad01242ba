"""Time and ids, injected wherever a decision needs them. Law: nothing else asks the system for either."""

import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

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


@dataclass(frozen=True, slots=True)
class Clock:
    """`now` is milliseconds since the epoch, `monotonic` seconds, `new_id` 122 random bits.

    `row_id` is for rows that callers never see: it begins with the time, so that new rows stand together on disk.
    """

    now: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    row_id: Callable[[], str] = lambda: f"{time.time_ns():016x}{secrets.token_hex(8)}"
    correlation_id: Callable[[], str] = lambda: secrets.token_hex(8)
