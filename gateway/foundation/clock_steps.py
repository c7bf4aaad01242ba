"""Detects that the clock was set. Law: after a step, no lease counts as expired until its holder had the time to renew it:
all processes on a ledger share its clock, and each renews by its own waits, not by the clock."""

from dataclasses import dataclass, field

import structlog

from gateway.foundation.clock import Clock

log = structlog.get_logger("gateway.foundation.clock_steps")

_ROUNDS = 3
"""Rounds of upkeep after a step: as many as a lease outlives when its holder is late."""


@dataclass(slots=True)
class ClockSteps:
    """Detects steps of the clock. `tolerance` is the number of seconds by which the clock may differ from one round to
    the next."""

    clock: Clock
    tolerance: float
    _ahead: float = field(init=False)
    _rounds: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._ahead = self._measured()

    def recent(self) -> bool:
        """Whether the clock was set in this round or in one of the last. Call it once in each round."""
        before, self._ahead = self._ahead, self._measured()
        step = self._ahead - before
        if abs(step) > self.tolerance:
            log.warning("clock.set", seconds=round(step, 1))
            self._rounds = _ROUNDS
        elif self._rounds:
            self._rounds -= 1
        return self._rounds > 0

    def _measured(self) -> float:
        """Seconds by which the clock is ahead of the monotonic one, which is never set."""
        return self.clock.now() / 1000 - self.clock.monotonic()
