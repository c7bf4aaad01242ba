"""What calls have left waiting at their backends when their callers gave up. Law: as in `maintenance/outbox.py`; the next
message of the conversation may be faster, and does the same.

Source: docs/state-model.md, section 8 and scenario 119b.
"""

from dataclasses import dataclass

import structlog

from gateway.engine.withdrawal import withdraw
from gateway.ledger.retention import EndWithdrawal, MoveWithdrawal, Withdrawal
from gateway.maintenance.duties import Duty
from gateway.maintenance.outbox import RETRIES, Outbox

log = structlog.get_logger("gateway.maintenance.withdrawals")


@dataclass(slots=True)
class Withdrawals(Outbox[Withdrawal]):
    @property
    def duty(self) -> Duty:
        return "withdrawals"

    async def next_jobs(self, limit: int) -> tuple[Withdrawal, ...]:
        return await self.ledger.next_withdrawals(limit)

    async def attempt(self, job: Withdrawal) -> None:
        agent = self.agents().by_name.get(job.agent)
        until, attempts = self.following(job)
        await self.ledger.commit(MoveWithdrawal(job.job, job.due_at, until, attempts))
        failure = "no agent has this name" if agent is None else await withdraw(agent, job, self.ledger)
        if failure is None:
            await self.ledger.commit(EndWithdrawal(job.job, job.thread))
            return
        found = {"agent": job.agent, "thread": job.thread, "run": job.run, "attempts": attempts, "detail": failure}
        if attempts > len(RETRIES):
            await self.ledger.commit(EndWithdrawal(job.job, job.thread))
            log.error("withdrawal.given-up", **found)
        else:
            log.warning("withdrawal.failed", **found)
