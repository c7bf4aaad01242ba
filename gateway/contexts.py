"""The end of a context, deleted or expired. Law: what still goes on there is cancelled; afterwards nothing of it can be read,
and what comes too late is not stored."""

from collections.abc import Callable

import structlog

from gateway.agents import Agent
from gateway.clock import Clock
from gateway.commits.failures import Conflict, CorruptRecord
from gateway.commits.forgetting import AgedContext, DeleteContext, ExpireContext, PurgeContext
from gateway.commits.threads import Caller
from gateway.elsewhere import Elsewhere
from gateway.errors import NotFound, echo
from gateway.fanout import Fanout
from gateway.ledger_port import Ledger
from gateway.model import TaskState
from gateway.recovery import close_task
from gateway.runner import Runner

log = structlog.get_logger("gateway.contexts")


class Contexts:
    """What is done to a conversation as a whole. One instance serves every agent of the gateway."""

    def __init__(
        self,
        ledger: Ledger,
        runner: Runner,
        fanout: Fanout,
        clock: Clock,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        """`ended` is called when backends have something to forget."""
        self._ended = ended
        self._ledger = ledger
        self._runner = runner
        self._fanout = fanout
        self._clock = clock
        self._elsewhere = Elsewhere(ledger, runner.patience)

    async def delete(self, caller: Caller, context_id: str, agent: Agent | None = None) -> None:
        """Deletes what was said in a context to every agent. With `agent`, only one in which that agent was spoken to.

        Source: state-model, scenarios 139 and 140. Raises: NotFound, also for another caller's and for a deleted one.
        """
        context = await self._ledger.context(caller, context_id, agent.name if agent is not None else "")
        if context is None or context.state == "deleted" or (agent is not None and context.thread is None):
            raise _not_found(context_id, agent)
        await self._close(caller, context_id, context.id)
        try:
            await self._ledger.commit(DeleteContext(caller, context.id, self._clock.now()))
        except Conflict as error:
            raise _not_found(context_id, agent) from error
        # Messages that were accepted meanwhile: their turns find nothing left to write to, and need not go on.
        await self._cancel(caller, context_id)
        await self._purge(context.id)

    async def expire(self, context: AgedContext, idle_before: int) -> bool:
        """Ends a context that nobody used since `idle_before`, and goes on where that was broken off; False: it was used.

        Source: state-model, scenario 142. Raises: Conflict, LedgerUnavailable.
        """
        if context.idle:
            try:
                await self._ledger.commit(ExpireContext(context.id, idle_before, self._clock.now()))
            except Conflict:
                return False
        await self._close(context.caller, context.public_id, context.id)
        await self._purge(context.id)
        return True

    async def _purge(self, row: str) -> None:
        """In pieces, so that nobody's turn waits long. Retention goes on where this is broken off."""
        while await self._ledger.left(row):
            await self._ledger.commit(PurgeContext(row, self._clock.now()))
        self._ended()

    async def _close(self, caller: Caller, public_id: str, row: str) -> None:
        await self._cancel(caller, public_id)
        # No process has a turn that waits for its caller: nobody would answer for it.
        await self._elsewhere.cancel(row, lambda turn: not turn.waits)
        try:
            waiting = await self._ledger.waiting(row)
        except CorruptRecord as error:
            # What cannot be read can still go.
            log.error("task.unreadable", context=public_id, error=str(error))
            return
        for task in waiting:
            await close_task(caller, task, TaskState.CANCELED, self._ledger, self._fanout, self._clock)

    async def _cancel(self, caller: Caller, context_id: str) -> None:
        """The last one first: none of them begins because the one before it has ended."""
        for work in reversed(self._runner.works(caller, context_id)):
            await self._runner.cancel(work)


def _not_found(context_id: str, agent: Agent | None) -> NotFound:
    where = "" if agent is None else f" with the agent {agent.name!r}"
    return NotFound(f"there is no context {echo(context_id)} of yours{where}")
