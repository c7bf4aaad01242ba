"""Jobs at backends that are rows of the ledger. Law: a process claims a job by moving its due time, so that a crash loses
nothing and one process makes each attempt. One process at a time looks for jobs that are due."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from gateway.core.agents import Agents
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import InFlight
from gateway.ledger.errors import Conflict, skip_failures
from gateway.ledger.port import BackendJobsLedger
from gateway.ledger.retention import Deletion, Withdrawal
from gateway.maintenance.duties import Duties, Duty

log = structlog.get_logger("gateway.maintenance.outbox")

J = TypeVar("J", Deletion, Withdrawal)

_BATCH = 8
_POLL_INTERVAL = 600.0
"""Seconds between two polls without a `wake`, for the jobs that other processes have left."""

_LEFT_TO_ANOTHER = 5.0
"""Seconds after which a process looks again whether the one that has the duty has done what is due."""


@dataclass(slots=True)
class Outbox(ABC, Generic[J]):
    """One instance of each kind serves every agent of the gateway.

    `agents` returns the agents in force; `chance` is from 0 to 1.
    """

    ledger: BackendJobsLedger
    agents: Callable[[], Agents]
    clock: Clock
    duties: Duties
    chance: Callable[[], float] = random.random
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _attempts: InFlight = field(default_factory=InFlight)

    def wake(self) -> None:
        """There may be a new job."""
        self._woken.set()

    async def wait_current(self) -> None:
        """Returns when the attempts under way have ended: later ones use the adapters in force."""
        await self._attempts.wait_current()

    async def run(self) -> None:
        """Never returns."""
        self.ledger.on_backend_job(self.wake)
        while True:
            self._woken.clear()
            pause = None
            with skip_failures(log, "outbox.skipped"):
                pause = await self.run_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_INTERVAL if pause is None else min(pause, _POLL_INTERVAL)):
                    await self._woken.wait()

    async def run_due(self) -> float | None:
        """Makes all due attempts, unless another process does. Returns the seconds until the next attempt, or None when no job
        is left.

        Raises: LedgerUnavailable.
        """
        while True:
            jobs = await self.next_jobs(_BATCH)
            now = self.clock.now()
            due = [job for job in jobs if job.due_at <= now]
            if not due:
                await self.duties.leave(self.duty)
                return (jobs[0].due_at - now) / 1000 if jobs else None
            if left := await self.duties.elsewhere(self.duty):
                return min(left, _LEFT_TO_ANOTHER)
            try:
                await self.duties.take(self.duty)
            except Conflict:
                return _LEFT_TO_ANOTHER
            with self._attempts.now:
                done = await asyncio.gather(*map(self.attempt, due), return_exceptions=True)
            for failure in done:
                if isinstance(failure, Exception) and not isinstance(failure, Conflict):
                    raise failure

    @property
    @abstractmethod
    def duty(self) -> Duty: ...

    @abstractmethod
    async def next_jobs(self, limit: int) -> tuple[J, ...]: ...

    @abstractmethod
    async def attempt(self, job: J) -> None:
        """Raises: Conflict when another process has claimed the job; LedgerUnavailable."""
