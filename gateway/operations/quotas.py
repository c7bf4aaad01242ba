"""What one principal may have at a time: requests in a minute, open streams, turns. Law: a limit that is off costs nothing;
a request over a limit is refused before anything is done."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from typing import Self

import msgspec

from gateway.a2a.errors import TooManyRequests
from gateway.foundation.clock import Clock
from gateway.foundation.rate_limit import TokenBuckets
from gateway.ledger.events import Frame
from gateway.ledger.threads import Caller
from gateway.operations.call import EventStream


class QuotaLimits(msgspec.Struct, frozen=True):
    """The limits of each principal. 0 stands for no limit."""

    requests_per_minute: int = 0
    streams: int = 0
    runs: int = 0


class Slot:
    """One use of what is limited. As a `with` block it is released at the end, unless `release_after` was called."""

    __slots__ = ("_caller", "_kept", "_taken")

    def __init__(self, taken: Counter[Caller] | None, caller: Caller) -> None:
        self._taken = taken
        self._caller = caller
        self._kept = False

    def release(self, _: object = None) -> None:
        """A second call does nothing."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken[self._caller] -= 1
            if not taken[self._caller]:
                del taken[self._caller]

    def release_after(self, done: asyncio.Future[None]) -> None:
        self._kept = True
        done.add_done_callback(self.release)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            self.release()


class ConcurrencyLimit:
    """The most of something that each principal may have at a time; `most` 0: no limit."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._taken: Counter[Caller] = Counter()
        self.most = 0

    def take(self, caller: Caller) -> Slot:
        """Raises: TooManyRequests when the principal has as many as it may."""
        if not self.most:
            return Slot(None, caller)
        if self._taken[caller] >= self.most:
            raise TooManyRequests(
                f"{self.most} {self._what} are the most that one principal may have; try again later.", retry_after=1
            )
        self._taken[caller] += 1
        return Slot(self._taken, caller)


class Quotas:
    def __init__(self, clock: Clock, limits: QuotaLimits | None = None) -> None:
        self._clock = clock
        self._requests: TokenBuckets | None = None
        self._per_minute = 0
        self.streams = ConcurrencyLimit("open streams")
        self.runs = ConcurrencyLimit("messages that are worked on or wait")
        self.limit(limits or QuotaLimits())

    def limit(self, limits: QuotaLimits) -> None:
        """Changes the limits. Streams and turns that began while there was no limit are never counted."""
        if limits.requests_per_minute != self._per_minute:
            rate = self._per_minute = limits.requests_per_minute
            self._requests = TokenBuckets(rate, rate / 60, self._clock.monotonic) if rate else None
        self.streams.most, self.runs.most = limits.streams, limits.runs

    def request(self, caller: Caller) -> None:
        """Raises: TooManyRequests."""
        if self._requests is not None and (wait := self._requests.take(caller)):
            raise TooManyRequests(
                f"{self._per_minute} requests in a minute are the most that one principal may make; try again later.",
                retry_after=math.ceil(wait),
            )


class CountedStream(msgspec.Struct, frozen=True):
    """A stream that releases its slot when it is closed."""

    stream: EventStream
    slot: Slot

    def __aiter__(self) -> AsyncIterator[list[Frame]]:
        return aiter(self.stream)

    async def aclose(self) -> None:
        self.slot.release()
        await self.stream.aclose()
