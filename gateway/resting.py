"""How long something that just failed is left alone, as a source of tools that could not be reached. Law: nobody waits for
what was not there a moment ago; one of them tries again for all when the time is over."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.clock import Clock

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
