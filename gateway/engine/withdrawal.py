"""Withdraws what a complete service call has left waiting at its backend. Law: an attempt is claimed in the ledger before the
backend is asked, so that one is under way at a time, in whichever process.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import structlog
from msgspec.structs import replace

from gateway.core.agents import Agent
from gateway.core.backend_jobs import RETRIES, claimed_until, next_attempt
from gateway.core.tools.tool_call import NOT_RUN
from gateway.foundation.clock import Clock
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.port import Commits, ThreadReads
from gateway.ledger.retention import EndWithdrawal, MoveWithdrawal, Withdrawal
from gateway.ports.adapter import AdapterError
from gateway.ports.capabilities import CanWithdraw, Ongoing
from gateway.ports.conversation import Item, OutputItem

log = structlog.get_logger("gateway.engine.withdrawal")

_TIMEOUT = 5.0
"""Seconds for the backend's answer. The next message of the conversation waits for it."""


class WithdrawalLedger(Commits, ThreadReads, Protocol):
    """The part of withdrawals."""


async def withdraw(agent: Agent | None, job: Withdrawal, ledger: WithdrawalLedger, clock: Clock, chance: float) -> bool:
    """One attempt at a job that nobody attempts; returns whether the job has ended. `agent` is None where there is none of the
    name, `chance` is from 0 to 1. Raises: Conflict when somebody else has claimed the job; LedgerUnavailable, CorruptRecord."""
    attempts, claimed = job.attempts + 1, claimed_until(clock.now())
    await ledger.commit(MoveWithdrawal(job.job, job.due_at, claimed, attempts))
    failure = "no agent has this name" if agent is None else await _ask(agent, job, ledger)
    found = {"agent": job.agent, "thread": job.thread, "run": job.run, "attempts": attempts, "detail": failure}
    if failure is not None and attempts <= len(RETRIES):
        following = next_attempt(attempts, clock.now(), chance)
        await ledger.commit(MoveWithdrawal(job.job, claimed, following, attempts))
        log.warning("withdrawal.failed", **found)
        return False
    await ledger.commit(EndWithdrawal(job.job, job.thread))
    if failure is not None:
        log.error("withdrawal.given-up", **found)
    return True


async def _ask(agent: Agent, job: Withdrawal, ledger: ThreadReads) -> str | None:
    """The reason why the backend may still wait; None when it does not, or cannot be told. Raises: LedgerUnavailable,
    CorruptRecord."""
    adapter = agent.adapter
    if not isinstance(adapter, CanWithdraw):
        return None
    outcomes = worth_telling(record.item for record in await ledger.history(job.thread, unsent_only=True))
    try:
        async with asyncio.timeout(_TIMEOUT):
            await adapter.withdraw(Ongoing(job.handle, job.run), outcomes)
    except AdapterError as error:
        drop_tracebacks(error)
        if not error.kind.meaning.conclusive:
            return str(error)
        log.warning("call.not-withdrawn", agent=agent.name, thread=job.thread, run=job.run, detail=error.detail)
    except TimeoutError as error:
        drop_tracebacks(error)
        return f"no answer within {_TIMEOUT:g} s"
    except Exception as error:  # noqa: BLE001 - a plug-in that fails must stop neither the other jobs nor the next message
        drop_tracebacks(error)
        return repr(error)
    return None


def worth_telling(unsent: Iterable[Item]) -> list[OutputItem]:
    """The outcomes that a backend is told before it gives up, so that the model knows what was done; none where no call has
    run. A yes to the backend's own call comes too late."""
    outcomes = [item for item in unsent if isinstance(item, OutputItem)]
    if all(item.approved is not None or item.output == NOT_RUN for item in outcomes):
        return []
    return [item if item.approved is None else replace(item, approved=False) for item in outcomes]
