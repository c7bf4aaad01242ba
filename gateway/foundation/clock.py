"""Time and ids, injected wherever a decision needs them. Law: no other module asks the system for either."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct

import msgspec
from msgspec.structs import replace

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_ALIKE = 2
_OWN = Struct("14s")
_AT_ONCE = _ALIKE + 1024 * _OWN.size
_alike = b""
_own: Iterator[tuple[bytes]] = iter(())


@lru_cache(maxsize=1024)
def timestamp(milliseconds: int) -> str:
    """Milliseconds since the epoch as A2A writes them: UTC, three decimals, `Z`. Source: A2A 1.0, section 5.6.1.

    A later time than the year 9999 has, which only a damaged row holds, is the last of that year.
    """
    seconds, rest = divmod(min(milliseconds, _LAST), 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def milliseconds(text: str) -> int:
    """The reverse of `timestamp`, for any ISO 8601 time with an offset. Raises: ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no UTC offset")
    return (moment - _EPOCH) // _MILLISECOND


def _random() -> bytes:
    """16 random bytes. One request to the system returns many of them, because each request releases the interpreter
    lock, and waiting for the lock again cost an eighth of a turn.

    All values of one request begin with the same two bytes, so that ids that are made at the same time are neighbours
    in every index.
    """
    for (own,) in _own:  # no thread gets what another one has got
        return _alike + own
    return _renewed()


def _renewed() -> bytes:
    """The first of the values of another request."""
    global _alike, _own
    fresh = os.urandom(_AT_ONCE)
    own: Iterator[tuple[bytes]] = _OWN.iter_unpack(memoryview(fresh)[_ALIKE:])
    [first] = next(own)
    _alike, _own = fresh[:_ALIKE], own
    return _alike + first


# A forked child would give out the same ids as its parent.
os.register_at_fork(after_in_child=_renewed)


ID_LENGTH = 36
"""Characters of the ids that callers see of the gateway."""


def uuid4() -> str:
    """Source: RFC 9562, section 5.4. Formatted here, because `uuid.UUID` takes four times as long, ten times a turn."""
    digits = _random().hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def row_id() -> str:
    """An id for a row that callers never see. It begins with the time, so that new rows are neighbours on disk."""
    return (time.time_ns().to_bytes(8) + _random()[8:]).hex()


def earliest_row_id(milliseconds: int) -> str:
    """No id of a row that was made at this time or later is less."""
    return (milliseconds * 1_000_000).to_bytes(8).hex()


class Clock(msgspec.Struct, frozen=True):
    """`now` is milliseconds since the epoch, `monotonic` seconds, `new_id` has 122 random bits, 106 of them its own.

    `now` is the time of this machine by default. A gateway that runs has its ledger's instead, which it shares with the other
    processes on that ledger.
    """

    now: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = uuid4
    row_id: Callable[[], str] = row_id
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
