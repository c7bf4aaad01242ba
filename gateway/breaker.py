"""Whether one backend is asked at all: a state machine over a clock. Law: what is down is left alone for a while, and then
asked once; only an answer opens the way for all others again.

Source: reliability, section 3 (cost DoS) and section 4 (B1).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

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
