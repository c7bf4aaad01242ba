"""Paused turns that are overdue: their questions have expired, or they have all answers and no process runs them. Law: each
continues with what is known; a faster answer or process wins, and nothing else changes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from gateway.a2a.tool_calls import rendering
from gateway.core.agents import Agents
from gateway.engine import paused_turn
from gateway.foundation.clock import Clock
from gateway.foundation.retry import Breaker
from gateway.ledger.errors import Conflict, CorruptRecord, skip_failures
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import TaskOwner
from gateway.ledger.threads import Caller
from gateway.maintenance.duties import Duties
from gateway.operations.paused_turns import PausedTurns
from gateway.scheduling.runner import Runner

log = structlog.get_logger("gateway.maintenance.expiry")

_EVERY = 5.0
_GRACE = 10_000
"""Milliseconds in which the process that got the last answer of a turn resumes it."""

_BATCH = 500


@dataclass(slots=True)
class QuestionExpiry:
    """One instance serves every agent of the gateway. `agents` returns the agents in force."""

    ledger: Ledger
    runner: Runner
    paused: PausedTurns
    clock: Clock
    duties: Duties
    agents: Callable[[], Agents]
    _breakers: dict[str, Breaker] = field(default_factory=dict)

    async def run(self) -> None:
        """Never returns."""
        while True:
            with skip_failures(log, "expiry.skipped"):
                await self.sweep()
            await asyncio.sleep(_EVERY)

    async def sweep(self) -> None:
        """Resumes the turns that are overdue now, unless another process does. Raises: LedgerUnavailable."""
        now = self.clock.now()
        due = await self.ledger.overdue_turns(now, now - _GRACE, _BATCH)
        if not due or self.runner.retired or await self.duties.elsewhere("expiry"):
            return
        # A turn that is overdue again could not be resumed before, and is tried less and less often.
        self._breakers = {task: self._breakers.get(task) or self._breaker() for _, task in due}
        for owner, task in due:
            if self.runner.retired:
                return
            if self.runner.run_of(task) is None and (number := self._breakers[task].admit()) is not None:
                self._breakers[task].failed(number)
                try:
                    with self.runner.in_flight.now:
                        await self._resume(owner, task, now)
                except Conflict:
                    continue
                except CorruptRecord as error:
                    log.error("task.unreadable", task=task, error=str(error))

    def _breaker(self) -> Breaker:
        return Breaker(self.clock.monotonic, failures=1, cooldown=15.0, longest=300.0)

    async def _resume(self, owner: TaskOwner, task: str, now: int) -> None:
        caller, agent = Caller(owner.principal, owner.tenant), self.agents().by_name.get(owner.agent)
        record = await self.ledger.task(caller, owner.agent, task)
        if agent is None or record is None:
            return
        shown = rendering(agent.policies.tool_calls, caller.principal, frozenset())
        paused = await paused_turn.load(self.ledger, self.clock, caller, record, shown)
        if paused is not None:
            # Not before there is something to do: a turn without its agent stays overdue.
            await self.duties.take("expiry")
        if paused is not None and paused.turn.cancel_asked:
            log.info("turn.cancelled", agent=agent.name, task=task, turn=paused.turn.turn)
            await self.paused.cancel(caller, record, shown)
        elif paused is not None:
            paused.expire(now)
            log.info("turn.taken-up", agent=agent.name, task=task, turn=paused.turn.turn)
            await self.paused.resume(agent, paused)
