"""Waits before a retry: back-off schedules, the `Retry-After` that a server asks for, and a circuit breaker.

Law: pure. Each caller keeps its own figures, and supplies its own random number and clock. Source: docs/state-model.md, retry
table.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_DOUBLINGS = 30
_DIGITS = 9

FAILURES = 5
WINDOW = 30.0
"""Seconds. By default, this many failures within this time, with no answer between them, mean that the target is down."""

COOLDOWN = 30.0
"""Seconds for which nothing is asked then."""

ORDINARY: Final = 0
"""The number of a request that is no trial."""


def backoff(first: float, longest: float, tries: int, jitter: float = 1.0) -> float:
    """Seconds before the next try after `tries` failed ones: `first`, doubled after each, at most `longest`.

    `jitter` is from 0 to 1 and takes off up to half, so that clients do not retry in step.
    """
    return min(first * 2.0 ** min(tries - 1, _DOUBLINGS), longest) * (1 + jitter) / 2


def scheduled(waits: Sequence[float], tries: int, jitter: float) -> float:
    """Seconds before the next try, from a table; its last entry repeats. `jitter` is a fraction of the entry."""
    return waits[min(tries, len(waits)) - 1] * (1 + jitter)


def parse_retry_after(headers: Mapping[str, str], now: int) -> float | None:
    """Seconds, None where the header is absent or malformed, as is a date that no calendar has. `now` is in milliseconds
    since the epoch.

    A date counts from the response's own `Date`, as the two clocks may differ. Source: RFC 9110, section 10.2.3.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text[:_DIGITS])
    until = _date(text)
    if until is None:
        return None
    sent = _date(headers.get("Date", ""))
    return max(0.0, until.timestamp() - (now / 1000 if sent is None else sent.timestamp()))


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Outage:
    """A target that counts as down has `lasted` so many seconds, and is left alone for `rest` more, in whole ones; 0: the next
    request is its trial, or a trial runs."""

    lasted: float
    rest: int


@dataclass(slots=True)
class Breaker:
    """Leaves a target that is down alone for a cooldown, and then asks it once; only an answer admits the other requests again.

    Each request is admitted under a number, and then `answered`, `failed` or `left`; a refused request is not made.
    Where `longest` is above `cooldown`, each failed trial doubles the cooldown, up to `longest`.
    """

    monotonic: Callable[[], float]
    failures: int = FAILURES
    cooldown: float = COOLDOWN
    longest: float = COOLDOWN
    _failed: deque[float] = field(default_factory=deque)
    _until: float | None = None
    _trial: int = ORDINARY
    _trying: bool = False
    _openings: int = 0
    _down_since: float = 0.0

    @property
    def outage(self) -> Outage | None:
        """None while the target counts as there."""
        if self._until is None:
            return None
        return Outage(self.monotonic() - self._down_since, math.ceil(self.rest))

    @property
    def refuses(self) -> bool:
        return self._until is not None and (self._trying or self.monotonic() < self._until)

    @property
    def rest(self) -> float:
        """Seconds until the target is asked again; 0 while it is asked, or while a trial runs."""
        return 0.0 if self._until is None else max(0.0, self._until - self.monotonic())

    def admit(self) -> int | None:
        """The number of a request that may be made, None for a refused one. Above `ORDINARY` it is the trial for all."""
        if self._until is None:
            return ORDINARY
        if self.refuses:
            return None
        self._trial, self._trying = self._trial + 1, True
        return self._trial

    def answered(self) -> bool:
        """Something came back, to any request. Returns whether the target counted as down."""
        was_down = self._until is not None
        self._failed.clear()
        self._until, self._trying, self._openings = None, False, 0
        return was_down

    def failed(self, number: int) -> bool:
        """The target is not there for this request. Returns whether it is left alone from now on."""
        now = self.monotonic()
        if self._until is None:
            self._failed.append(now)
            if len(self._failed) > self.failures:
                self._failed.popleft()
            if len(self._failed) < self.failures or now - self._failed[0] > WINDOW:
                return False
            self._down_since = self._failed[0]
        elif not self._is_trial(number):
            return False
        self._failed.clear()
        self._openings += 1
        self._until, self._trying = now + backoff(self.cooldown, self.longest, self._openings), False
        return True

    def left(self, number: int) -> None:
        """This request ended without telling whether the target is there: if it was the trial, the next one is."""
        if self._is_trial(number):
            self._trying = False

    def _is_trial(self, number: int) -> bool:
        return self._trying and number == self._trial
