"""Counts the limits of principals over all processes on a ledger. Law: approximate, and never in the way: a request is
decided by what is known here, and where the ledger does not answer, each process counts for itself.

Each process that has a limit says at long intervals that it is there. While there are others, it writes at each look what its
callers use, and reads what those of the others do; alone it only reads.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from gateway.foundation.clock import Clock
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable, skip_failures
from gateway.ledger.port import QuotaLedger
from gateway.ledger.quotas import CallerUse, ReportUse, WithdrawUse
from gateway.operations.quotas import Quotas
from gateway.scheduling.leases import LeaseTimes

log = structlog.get_logger("gateway.operations.shared_quotas")

PRESENT = 900_000
"""Milliseconds for which a process that reports no use counts as present."""


@dataclass(slots=True)
class SharedQuotas:
    """Those of one process; `process` is its id. A report of use lapses with a lease of these times."""

    ledger: QuotaLedger
    clock: Clock
    process: str
    times: LeaseTimes
    quotas: Quotas
    _reported: ReportUse | None = None
    _looked_at: float = -math.inf

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        """Others know of this process from the beginning of the block to its end."""
        with skip_failures(log, "quotas.not-shared"):
            await self.look()
        try:
            yield
        finally:
            with skip_failures(log, "quotas.not-withdrawn"):
                await self._withdraw()

    async def run(self) -> None:
        """Never returns."""
        while True:
            await asyncio.sleep(self.times.round)
            with skip_failures(log, "quotas.not-shared"):
                await self.look()

    async def look(self) -> None:
        """Hears of the others, and tells them what is new here. Raises: LedgerUnavailable, CorruptRecord; then this process
        counts alone."""
        if not self.quotas.limited:
            self.quotas.count_alone()
            await self._withdraw()
            return
        try:
            await self._exchange()
        except (LedgerUnavailable, CorruptRecord):
            self._reported = None
            self.quotas.count_alone()
            raise

    async def _exchange(self) -> None:
        now, looked_at = self.clock.now(), self.clock.monotonic()
        others = await self.ledger.reported_use(self.process, now)
        if not others or looked_at - self._looked_at > self.times.length:
            # What was heard before a pause says nothing of when requests were made meanwhile.
            self.quotas.count_alone()
        self._looked_at = looked_at
        self.quotas.hear(others)
        use = self.quotas.use() if others else ()
        report = next_report(self.process, use, self._reported, now, self.times)
        if report is not None:
            await self.ledger.commit(report)
            self._reported = report

    async def _withdraw(self) -> None:
        """Raises: LedgerUnavailable."""
        if self._reported is not None:
            await self.ledger.commit(WithdrawUse(self.process))
            self._reported = None


def next_report(
    process: str, use: tuple[CallerUse, ...], reported: ReportUse | None, now: int, times: LeaseTimes
) -> ReportUse | None:
    """What is to be written after the last report; None where that still says it."""
    if use:
        return ReportUse(process, now + int(times.length * 1000), use, now)
    if reported is not None and not reported.callers and PRESENT // 2 < reported.until - now <= PRESENT:
        return None
    return ReportUse(process, now + PRESENT, (), now)
