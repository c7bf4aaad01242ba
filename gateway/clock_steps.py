"""Whether the system's clock was set. Law: when it was, nobody's lease tells anything until its holder had the time to renew
it: the clock is the same for all processes of the machine, and each of them renews by its own waits, not by the clock."""

from dataclasses import dataclass, field

import structlog

from gateway.clock import Clock

log = structlog.get_logger("gateway.clock")

_ROUNDS = 3
"""Of the upkeep: as many as a lease outlives when its holder is late."""


@dataclass(slots=True)
class ClockSteps:
    """`tolerance`: seconds by which the clock may differ from one round to the next."""

    clock: Clock
    tolerance: float
    _ahead: float = field(init=False)
    _rounds: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._ahead = self._measured()

    def recent(self) -> bool:
        """To be asked once in each round. It was set in this round or in one of the last."""
        before, self._ahead = self._ahead, self._measured()
        step = self._ahead - before
        if abs(step) > self.tolerance:
            log.warning("clock.set", seconds=round(step, 1))
            self._rounds = _ROUNDS
        elif self._rounds:
            self._rounds -= 1
        return self._rounds > 0

    def _measured(self) -> float:
        """By how many seconds it is ahead of one that nobody sets."""
        return self.clock.now() / 1000 - self.clock.monotonic()
