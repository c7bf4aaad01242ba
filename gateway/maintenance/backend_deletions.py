"""Deletions at backends. Law: as in `maintenance/outbox.py`; what was given up stays for the operator."""

import asyncio
from dataclasses import dataclass

import structlog

from gateway.core.backend_jobs import RETRIES, next_attempt
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.retention import Deletion, EndDeletion, MoveDeletion
from gateway.maintenance.duties import Duty
from gateway.maintenance.outbox import Outbox
from gateway.ports.adapter import AdapterError
from gateway.ports.capabilities import CanForget

log = structlog.get_logger("gateway.maintenance.backend_deletions")

_TIMEOUT = 30.0
"""Seconds for the backend's answer: less than the first wait, which is the length of the claim."""


@dataclass(slots=True)
class Deletions(Outbox[Deletion]):
    """The outbox of C7."""

    @property
    def duty(self) -> Duty:
        return "deletions"

    async def next_jobs(self, limit: int) -> tuple[Deletion, ...]:
        return await self.ledger.deletions(limit)

    async def attempt(self, job: Deletion) -> None:
        agent = self.agents().by_name.get(job.agent)
        able = agent.adapter if agent is not None and isinstance(agent.adapter, CanForget) else None
        if agent is not None and able is None:
            await self.ledger.commit(EndDeletion(job.job, job.due_at))
            log.info("deletion.not-possible", agent=job.agent, handle=job.handle)
            return
        attempts = job.attempts + 1
        until = next_attempt(attempts, self.clock.now(), self.chance())
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
