"""Deletions at backends. Law: a process claims a job by moving its due time to the next attempt, so that a crash loses nothing
and one process makes each attempt."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from gateway.core.agents import Agents
from gateway.foundation.clock import Clock
from gateway.foundation.retry import scheduled
from gateway.foundation.shutdown import InFlight
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.errors import Conflict, skip_failures
from gateway.ledger.port import RetentionLedger
from gateway.ledger.retention import Deletion, EndDeletion, MoveDeletion
from gateway.ports.adapter import AdapterError
from gateway.ports.capabilities import CanForget

log = structlog.get_logger("gateway.maintenance.backend_deletions")

RETRIES = (60, 5 * 60, 30 * 60, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600)
"""Seconds from one attempt to the next. The attempt after the last wait is the last one."""

_JITTER = 0.2
_TIMEOUT = 30.0
"""Seconds for the backend's answer: less than the first wait, which is the length of the claim."""

_BATCH = 8
_POLL_INTERVAL = 600.0
"""Seconds between two polls without a `wake`, for the jobs that other processes have left."""


@dataclass(slots=True)
class Deletions:
    """The outbox of C7. One instance serves every agent of the gateway.

    `agents` returns the agents in force; `chance` is from 0 to 1.
    """

    ledger: RetentionLedger
    agents: Callable[[], Agents]
    clock: Clock
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
        self.ledger.on_deletion(self.wake)
        while True:
            self._woken.clear()
            pause = None
            with skip_failures(log, "deletions.skipped"):
                pause = await self.run_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_INTERVAL if pause is None else min(pause, _POLL_INTERVAL)):
                    await self._woken.wait()

    async def run_due(self) -> float | None:
        """Makes all due attempts. Returns the seconds until the next attempt, or None when no job is left.

        Raises: LedgerUnavailable.
        """
        while True:
            jobs = await self.ledger.deletions(_BATCH)
            now = self.clock.now()
            due = [job for job in jobs if job.due_at <= now]
            if not due:
                return (jobs[0].due_at - now) / 1000 if jobs else None
            with self._attempts.now:
                done = await asyncio.gather(*map(self._attempt, due), return_exceptions=True)
            for failure in done:
                if isinstance(failure, Exception) and not isinstance(failure, Conflict):
                    raise failure

    async def _attempt(self, job: Deletion) -> None:
        """Raises: Conflict when another process has claimed the job; LedgerUnavailable."""
        agent = self.agents().by_name.get(job.agent)
        able = agent.adapter if agent is not None and isinstance(agent.adapter, CanForget) else None
        if agent is not None and able is None:
            await self.ledger.commit(EndDeletion(job.job, job.due_at))
            log.info("deletion.not-possible", agent=job.agent, handle=job.handle)
            return
        attempts = job.attempts + 1
        delay = scheduled(RETRIES, attempts, _JITTER * self.chance())
        until = self.clock.now() + int(delay * 1000)
        await self.ledger.commit(MoveDeletion(job.job, job.due_at, until, attempts))
        failure = "no agent has this name" if able is None else await _forget(able, job.handle)
        if failure is None:
            await self.ledger.commit(EndDeletion(job.job, until))
        elif attempts > len(RETRIES):
            await self.ledger.commit(MoveDeletion(job.job, until, None, attempts))
            log.error("deletion.given-up", agent=job.agent, handle=job.handle, attempts=attempts, detail=failure)
        else:
            log.warning("deletion.failed", agent=job.agent, handle=job.handle, attempts=attempts, detail=failure)


async def _forget(adapter: CanForget, handle: str) -> str | None:
    """The reason why the backend may still have the conversation, or None when the backend has deleted it."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            await adapter.forget(handle)
    except AdapterError as error:
        drop_tracebacks(error)
        return None if error.kind.meaning.handle_lost else str(error)
    except TimeoutError as error:
        drop_tracebacks(error)
        return f"no answer within {_TIMEOUT:g} s"
    except Exception as error:  # noqa: BLE001 - a plug-in that fails must not stop the other jobs
        drop_tracebacks(error)
        return repr(error)
    return None
