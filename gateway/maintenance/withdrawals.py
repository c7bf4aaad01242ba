"""What calls have left waiting at their backends when their callers gave up. Law: as in `maintenance/outbox.py`; the next
message of the conversation may be faster, and does the same; it waits for an attempt that is under way.

Source: docs/state-model.md, section 8 and scenario 119b.
"""

from dataclasses import dataclass

from gateway.engine.withdrawal import withdraw
from gateway.ledger.retention import Withdrawal
from gateway.maintenance.duties import Duty
from gateway.maintenance.outbox import Outbox


@dataclass(slots=True)
class Withdrawals(Outbox[Withdrawal]):
    @property
    def duty(self) -> Duty:
        return "withdrawals"

    async def next_jobs(self, limit: int) -> tuple[Withdrawal, ...]:
        return await self.ledger.next_withdrawals(limit)

    async def attempt(self, job: Withdrawal) -> None:
        await withdraw(self.agents().by_name.get(job.agent), job, self.ledger, self.clock, self.chance())
