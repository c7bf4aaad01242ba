"""Deletions at backends, carried out beside everything else. Law: a job is claimed by moving it on to when it would be tried
again: who dies in between loses nothing, and of two processes one has it."""

import asyncio
import random
from collections.abc import Callable

import structlog

from gateway.core.agents import Agents
from gateway.foundation.clock import Clock
from gateway.foundation.in_flight import InFlight
from gateway.foundation.retry import scheduled
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.port import RetentionLedger
from gateway.ledger.retention import Deletion, EndDeletion, MoveDeletion
from gateway.ports.adapter import AdapterError
from gateway.ports.capabilities import Forgetting

log = structlog.get_logger("gateway.maintenance.backend_deletions")

RETRIES = (60, 5 * 60, 30 * 60, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600)
"""Seconds from one attempt to the next. After the attempt behind the last of them a job is given up."""

_JITTER = 0.2
_PATIENCE = 30.0
"""Seconds that a backend has to answer: fewer than lie before the next attempt."""

_AT_ONCE = 8
_LOOK = 600.0
"""Seconds after which it looks by itself: a failed turn, or another process, wakes nobody."""


class Deletions:
    """The outbox of C7. One instance serves every agent of the gateway."""

    def __init__(
        self,
        ledger: RetentionLedger,
        agents: Callable[[], Agents],
        clock: Clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`agents` are those that are in force now; `chance` is from 0 to 1."""
        self._ledger = ledger
        self._agents = agents
        self._clock = clock
        self._chance = chance
        self._woken = asyncio.Event()
        self._attempts = InFlight()

    def wake(self) -> None:
        """There may be something new to do."""
        self._woken.set()

    async def wait_current(self) -> None:
        """Returns when the attempts under way have ended: later ones use the adapters in force."""
        await self._attempts.wait_current()

    async def run(self) -> None:
        """Never returns."""
        while True:
            self._woken.clear()
            try:
                pause = await self.carry_out()
            except LedgerUnavailable as error:
                log.warning("deletions.skipped", error=str(error))
                pause = None
            except Exception:  # whatever it is, the gateway goes on without
                log.exception("deletions.skipped")
                pause = None
            try:
                async with asyncio.timeout(_LOOK if pause is None else min(pause, _LOOK)):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def carry_out(self) -> float | None:
        """Does all that is due. Returns the seconds until the next one, None when there is none.

        Raises: LedgerUnavailable.
        """
        while True:
            jobs = await self._ledger.deletions(_AT_ONCE)
            now = self._clock.now()
            due = [job for job in jobs if job.due_at <= now]
            if not due:
                return (jobs[0].due_at - now) / 1000 if jobs else None
            async with asyncio.TaskGroup() as group:
                done = [group.create_task(self._carry_out(job)) for job in due]
            for failure in filter(None, (task.result() for task in done)):
                raise failure

    async def _carry_out(self, job: Deletion) -> LedgerUnavailable | None:
        try:
            with self._attempts.now:
                await self._attempt(job)
        except Conflict:
            return None  # another process has it
        except LedgerUnavailable as error:
            return error
        return None

    async def _attempt(self, job: Deletion) -> None:
        agent = self._agents().by_name.get(job.agent)
        able = agent.adapter if agent is not None and isinstance(agent.adapter, Forgetting) else None
        if agent is not None and able is None:
            await self._ledger.commit(EndDeletion(job.job, job.due_at))
            log.info("deletion.not-possible", agent=job.agent, handle=job.handle)
            return
        attempts = job.attempts + 1
        delay = scheduled(RETRIES, attempts, _JITTER * self._chance())
        until = self._clock.now() + int(delay * 1000)
        await self._ledger.commit(MoveDeletion(job.job, job.due_at, until, attempts))
        failure = "no agent has this name" if able is None else await _forget(able, job.handle)
        if failure is None:
            await self._ledger.commit(EndDeletion(job.job, until))
        elif attempts > len(RETRIES):
            await self._ledger.commit(MoveDeletion(job.job, until, None, attempts))
            log.error("deletion.given-up", agent=job.agent, handle=job.handle, attempts=attempts, detail=failure)
        else:
            log.warning("deletion.failed", agent=job.agent, handle=job.handle, attempts=attempts, detail=failure)


async def _forget(adapter: Forgetting, handle: str) -> str | None:
    """Why the backend may still have it; None when it has not."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await adapter.forget(handle)
    except AdapterError as error:
        return None if error.kind.meaning.handle_lost else str(error)
    except TimeoutError:
        return f"no answer within {_PATIENCE:g} s"
    except Exception as error:  # noqa: BLE001 - the adapter may be a stranger's, and the other jobs go on
        return repr(error)
    return None
