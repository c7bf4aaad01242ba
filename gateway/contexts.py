"""Deleting a context. Law: what still goes on there is cancelled first; afterwards nothing of it can be read, and what
comes too late is not stored."""

from gateway.agents import Agent
from gateway.clock import Clock
from gateway.commits import Caller, Conflict, DeleteContext
from gateway.elsewhere import Elsewhere
from gateway.errors import NotFound, echo
from gateway.fanout import Fanout
from gateway.model import TaskState
from gateway.ports import Ledger
from gateway.recovery import close_task
from gateway.runner import Runner


class Contexts:
    """What is done to a conversation as a whole. One instance serves every agent of the gateway."""

    def __init__(self, ledger: Ledger, runner: Runner, fanout: Fanout, clock: Clock) -> None:
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
        await self._cancel(caller, context_id)
        await self._elsewhere.cancel(context.id, lambda _: True)
        for task in await self._ledger.waiting(context.id):
            await close_task(task, TaskState.CANCELED, self._ledger, self._fanout, self._clock)
        try:
            await self._ledger.commit(DeleteContext(caller, context.id, self._clock.now()))
        except Conflict as error:
            raise _not_found(context_id, agent) from error
        # Messages that were accepted meanwhile: their turns find nothing left to write to, and need not go on.
        await self._cancel(caller, context_id)

    async def _cancel(self, caller: Caller, context_id: str) -> None:
        """The last one first: none of them begins because the one before it has ended."""
        for work in reversed(self._runner.works(caller, context_id)):
            await self._runner.cancel(work)


def _not_found(context_id: str, agent: Agent | None) -> NotFound:
    where = "" if agent is None else f" with the agent {agent.name!r}"
    return NotFound(f"there is no context {echo(context_id)} of yours{where}")
