"""What one principal may have at a time: requests in a minute, open streams, turns. Law: a limit that is off costs nothing;
over one that is on, the caller is told before anything is done."""

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from gateway.a2a.errors import TooManyRequests
from gateway.foundation.clock import Clock
from gateway.foundation.rate_limit import TokenBuckets
from gateway.ledger.events import Frame
from gateway.ledger.threads import Caller
from gateway.operations.api import EventStream

Free = Callable[[], None]
"""Gives a place back; a second time it does nothing."""


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Of each principal; 0: no limit."""

    requests_per_minute: int = 0
    streams: int = 0
    runs: int = 0


def _nothing() -> None:
    """What is not counted needs no freeing."""


class ConcurrencyLimit:
    """At most so many of something for each principal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._taken: Counter[Caller] = Counter()
        self.most = 0

    def take(self, caller: Caller) -> Free:
        """Raises: TooManyRequests when the principal has as many as it may."""
        if not self.most:
            return _nothing
        if self._taken[caller] >= self.most:
            raise TooManyRequests(
                f"{self.most} {self._what} are the most that one principal may have; try again later.", retry_after=1
            )
        self._taken[caller] += 1
        taken = True

        def free() -> None:
            nonlocal taken
            if taken:
                taken = False
                self._taken[caller] -= 1
                if not self._taken[caller]:
                    del self._taken[caller]

        return free


class Quotas:
    def __init__(self, clock: Clock, limits: QuotaLimits | None = None) -> None:
        self._clock = clock
        self._requests: TokenBuckets | None = None
        self._per_minute = 0
        self.streams = ConcurrencyLimit("open streams")
        self.runs = ConcurrencyLimit("messages that are worked on or wait")
        self.limit(limits or QuotaLimits())

    def limit(self, limits: QuotaLimits) -> None:
        """From now on. Streams and turns that began while they were not counted are not counted later."""
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


class CountedStream:
    """A stream that gives its place back when it is closed."""

    def __init__(self, stream: EventStream, free: Free) -> None:
        self._stream = stream
        self._free = free

    def __aiter__(self) -> AsyncIterator[list[Frame]]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        self._free()
        await self._stream.aclose()
