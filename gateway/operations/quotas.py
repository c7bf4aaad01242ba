"""What one principal may have at a time: requests in a minute, open streams, turns. Law: a limit that is off costs nothing;
a request over a limit is refused before anything is done.

Other processes count too, with what was last heard of them: their streams and turns are added to those of this process, their
requests are taken from the same bucket.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Self

import msgspec

from gateway.a2a.errors import TooManyRequests
from gateway.foundation.clock import Clock
from gateway.foundation.rate_limit import TokenBuckets
from gateway.ledger.events import Frame
from gateway.ledger.quotas import CallerUse, ReportedUse
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
        self.elsewhere: Mapping[Caller, int] = {}
        """What each principal has in other processes."""
        self.most = 0

    @property
    def taken(self) -> Mapping[Caller, int]:
        """What each principal has here. Nobody has 0."""
        return self._taken

    def take(self, caller: Caller) -> Slot:
        """Raises: TooManyRequests when the principal has as many as it may."""
        if not self.most:
            return Slot(None, caller)
        if self._taken[caller] + self.elsewhere.get(caller, 0) >= self.most:
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
        self._made: Counter[Caller] = Counter()
        """Requests that were admitted here since the caller's bucket was full, or since this process counted alone."""
        self._heard: dict[str, dict[Caller, int]] = {}
        """The numbers of requests that each other process told last."""
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
        if self._requests is None:
            return
        if wait := self._requests.take(caller):
            raise TooManyRequests(
                f"{self._per_minute} requests in a minute are the most that one principal may make; try again later.",
                retry_after=math.ceil(wait),
            )
        self._made[caller] += 1

    # --- with other processes

    @property
    def limited(self) -> bool:
        return bool(self._requests or self.streams.most or self.runs.most)

    def use(self) -> tuple[CallerUse, ...]:
        """What is used here now, of all callers that use something. Requests are left out once the caller's bucket is full."""
        buckets = self._requests
        for caller in list(self._made):
            if buckets is None or buckets.is_full(caller):
                del self._made[caller]
        streams, runs = self.streams.taken, self.runs.taken
        callers = dict.fromkeys((*self._made, *streams, *runs))
        return tuple(
            CallerUse(each.principal, each.tenant, self._made[each], streams.get(each, 0), runs.get(each, 0))
            for each in callers
        )

    def hear(self, reports: Iterable[ReportedUse]) -> None:
        """What the other processes use now. The requests of a process that was not heard of before are taken as counted, since
        nothing tells when they were made."""
        streams: Counter[Caller] = Counter()
        runs: Counter[Caller] = Counter()
        heard: dict[str, dict[Caller, int]] = {}
        for report in reports:
            before, told = self._heard.get(report.process), heard.setdefault(report.process, {})
            for use in report.callers:
                caller = use.caller
                streams[caller] += use.streams
                runs[caller] += use.runs
                told[caller] = use.requests
                if before is not None and self._requests is not None:
                    self._requests.charge(caller, requests_since(before.get(caller, 0), use.requests))
        self._heard = heard
        self.streams.elsewhere, self.runs.elsewhere = streams, runs

    def count_alone(self) -> None:
        """As if there were no other process. The next requests are the first that others are to know of."""
        self._made.clear()
        self.hear(())


def requests_since(before: int, now: int) -> int:
    """How many were made between two numbers that a process told. A smaller one has begun anew."""
    return now - before if now >= before else now


class CountedStream(msgspec.Struct, frozen=True):
    """A stream that releases its slot when it is closed."""

    stream: EventStream
    slot: Slot

    @property
    def may_end_at(self) -> int:
        return self.stream.may_end_at

    def __aiter__(self) -> AsyncIterator[list[Frame]]:
        return aiter(self.stream)

    async def aclose(self) -> None:
        self.slot.release()
        await self.stream.aclose()
