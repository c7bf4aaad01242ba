"""Which process does the work that is to be done once, and not by each on the ledger. Law: who finds something to do takes the
duty, and the others leave it to that process until it leaves the duty, stops, or lets it lapse.

Nothing depends on it but the effort: all that is done is compare-and-set by itself. A process that wakes behind the end of its
duty makes at worst an attempt that the ledger refuses, or deletes what is over its time and would be deleted anyway.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import structlog

from gateway.foundation.clock import Clock
from gateway.ledger.duties import LeaveDuty, TakeDuty
from gateway.ledger.errors import Conflict, skip_failures
from gateway.ledger.port import DutyLedger

log = structlog.get_logger("gateway.maintenance.duties")

Duty = Literal["retention", "expiry", "deletions", "withdrawals"]

_LENGTHS: dict[Duty, int] = {"retention": 900_000, "expiry": 10_000, "deletions": 60_000, "withdrawals": 60_000}
"""Milliseconds for which a duty is taken: as long the others wait where its process has died. A sweep of retention is also left
to the process that made one so long before."""


@dataclass(slots=True)
class Duties:
    """Those of one process; `holder` is its id."""

    ledger: DutyLedger
    clock: Clock
    holder: str
    _until: dict[Duty, int] = field(default_factory=dict)

    async def elsewhere(self, duty: Duty) -> float:
        """The seconds for which another process still has the duty; 0 where none has it. Raises: LedgerUnavailable."""
        held, now = await self.ledger.duty(duty), self.clock.now()
        if held is None or held.holder == self.holder or held.has_lapsed(now):
            return 0.0
        return max(held.until - now, 1) / 1000

    async def take(self, duty: Duty) -> None:
        """Takes the duty, or keeps it: that is written when half of its time is over.

        Raises: Conflict when another process has it; LedgerUnavailable.
        """
        now, length = self.clock.now(), _LENGTHS[duty]
        if 2 * (self._until.get(duty, 0) - now) > length:
            return
        try:
            await self.ledger.commit(TakeDuty(duty, self.holder, now + length, now))
        except Conflict:
            self._until.pop(duty, None)
            raise
        self._until[duty] = now + length

    async def leave(self, duty: Duty) -> None:
        """Raises: LedgerUnavailable."""
        if self._until.pop(duty, None) is not None:
            await self.ledger.commit(LeaveDuty(duty, self.holder))

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Leaves all behind the block, in which the process works. What cannot be written lapses."""
        try:
            yield
        finally:
            for duty in list(self._until):
                with skip_failures(log, "duty.not-left"):
                    await self.leave(duty)
