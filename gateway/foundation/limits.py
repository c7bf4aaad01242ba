"""Whether one backend is asked at all: a state machine over a clock. Law: what is down is left alone for a while, and then
asked once; only an answer opens the way for all others again.

Source: reliability, section 3 (cost DoS) and section 4 (B1).

How long a connection is kept for its next request. Law: who sends closes first; else a request now and then meets a
connection that is just being closed, and is lost.

Most servers keep one for 5 s (uvicorn, Node.js) or longer, gunicorn for 2 s; most clients and load balancers for 60 s or less.

How long something that just failed is left alone, as a source of tools that could not be reached. Law: nobody waits for
what was not there a moment ago; one of them tries again for all when the time is over.

How often something may happen: a bucket of tokens for each key. Law: no timer, and no memory of those who are quiet.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from gateway.foundation.clock import Clock

FAILURES = 5
WINDOW = 30.0
"""Seconds. So many failures in such a time, and no answer between them, mean that the backend is down."""

COOLDOWN = 30.0
"""Seconds for which nobody asks then."""

ORDINARY: Final = 0
"""The number of a request that is no trial."""


@dataclass(slots=True)
class Breaker:
    """Each request is admitted under a number, and then `answered`, `failed` or `left`; one that is refused is not made."""

    monotonic: Callable[[], float]
    _failed: deque[float] = field(default_factory=lambda: deque(maxlen=FAILURES))
    _until: float | None = None
    _trial: int = ORDINARY
    _trying: bool = False

    @property
    def refuses(self) -> bool:
        return self._until is not None and (self._trying or self.monotonic() < self._until)

    @property
    def rest(self) -> float:
        """Seconds until the backend is asked again; 0 where it is asked, or somebody is asking it."""
        return 0.0 if self._until is None else max(0.0, self._until - self.monotonic())

    def admit(self) -> int | None:
        """The number of a request that may be made, None for one that may not. Above `ORDINARY` it is the trial for all."""
        if self._until is None:
            return ORDINARY
        if self.refuses:
            return None
        self._trial, self._trying = self._trial + 1, True
        return self._trial

    def answered(self) -> bool:
        """Something came back, to whichever request. Whether the backend counted as down."""
        was_down = self._until is not None
        self._failed.clear()
        self._until, self._trying = None, False
        return was_down

    def failed(self, number: int) -> bool:
        """The backend is not there for this request. Whether it is left alone from now on."""
        now = self.monotonic()
        if self._until is None:
            self._failed.append(now)
            if len(self._failed) < FAILURES or now - self._failed[0] > WINDOW:
                return False
        elif not self._is_trial(number):
            return False
        self._failed.clear()
        self._until, self._trying = now + COOLDOWN, False
        return True

    def left(self, number: int) -> None:
        """This request ended without a word on whether the backend is there: if it was the trial, the next one is."""
        if self._is_trial(number):
            self._trying = False

    def _is_trial(self, number: int) -> bool:
        return self._trying and number == self._trial


SERVED_SECONDS = 75
"""Those of our callers."""

OPENED_SECONDS = 4.0
"""Our own, to backends, tools, receivers and other agents: none is used again that was idle for longer."""


_FIRST, _LONGEST = 15.0, 300.0
"""Seconds. Each rest is twice as long as the one before."""


@dataclass(slots=True)
class Rest:
    """Of one source, whatever agents share it, or of one turn that could not be taken up."""

    monotonic: Callable[[], float] = field(default_factory=lambda: Clock().monotonic)
    _length: float = 0.0
    _until: float = 0.0
    _tried_again: bool = False

    def holds(self) -> bool:
        """Whether the source is to be left alone. Whoever is told that it is not tries for all others."""
        if not self._length:
            return False
        now = self.monotonic()
        if now < self._until:
            return True
        self._until, self._tried_again = now + self._length, True
        return False

    def begin(self) -> float:
        """It could not be reached; the seconds until somebody tries again."""
        self._length = min(self._length * 2, _LONGEST) if self._tried_again else self._length or _FIRST
        self._until, self._tried_again = self.monotonic() + self._length, False
        return self._length

    def end(self) -> bool:
        """It answers. Whether it could not be reached before."""
        rested = bool(self._length)
        self._length = self._until = 0.0
        self._tried_again = False
        return rested


_MOST = 10_000
"""Keys that are remembered; beyond it, those that were heard of longest ago are forgotten."""


class Buckets:
    """Each key has `size` tokens at first, and gets `per_second` more until it has as many again."""

    def __init__(self, size: float, per_second: float, monotonic: Callable[[], float]) -> None:
        self._size = size
        self._per_second = per_second
        self._monotonic = monotonic
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def take(self, key: Hashable) -> float:
        """0 and one token less; or, where there is none, the seconds until there is."""
        now = self._monotonic()
        level, at = self._levels.pop(key, (self._size, now))
        level = min(self._size, level + (now - at) * self._per_second)
        taken = level >= 1.0
        self._levels[key] = (level - taken, now)
        if len(self._levels) > _MOST:
            self._forget(now)
        return 0.0 if taken else (1.0 - level) / self._per_second

    def _forget(self, now: float) -> None:
        """They stand in the order in which they were last heard of: full ones are those of long ago."""
        refilled = now - self._size / self._per_second
        while self._levels:
            oldest = next(iter(self._levels))
            if len(self._levels) <= _MOST and self._levels[oldest][1] > refilled:
                return
            del self._levels[oldest]
