"""A scripted backend that can delete the state of a handle, and the jobs that delete."""

from typing import Any

from gateway.core.agents import Agents
from gateway.maintenance.backend_deletions import Deletions
from gateway.maintenance.retention import Lifetimes, Retention
from gateway.operations.contexts import Contexts
from tests.support.core import Core
from tests.support.scripted import Pause, ScriptedAdapter


class DeletingAdapter(ScriptedAdapter):
    """`answers` are those of `forget`, in order; later ones succeed. `asked` are the handles."""

    def __init__(self, *script: Any, answers: tuple[BaseException | Pause | None, ...] = (), **more: Any) -> None:
        super().__init__(*script, **more)
        self._answers = list(answers)
        self.asked: list[str] = []

    async def forget(self, handle: str) -> None:
        self.asked.append(handle)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Pause):
            await answer.pass_by()
        elif answer is not None:
            raise answer


def deletions(core: Core) -> Deletions:
    """Of all agents of the core, without jitter."""
    return Deletions(core.ledger, lambda: Agents(tuple(core.agents)), core.time.clock, core.duties, lambda: 0.0)


def contexts(core: Core) -> Contexts:
    return Contexts(core.ledger, core.runner, core.fanout, core.time.clock, core.drain)


DAY = 86_400_000


def retention(core: Core, events: float = 7, tasks: float = 30, contexts_idle: float = 90) -> Retention:
    """Lifetimes in days."""
    lifetimes = Lifetimes(events * 86400, tasks * 86400, contexts_idle * 86400)
    return Retention(core.ledger, contexts(core), core.time.clock, core.duties, lifetimes)
