"""A scripted backend that waits for its caller until that is withdrawn, and the jobs that withdraw."""

from collections.abc import AsyncGenerator, Sequence

from gateway.core.agents import Agents
from gateway.maintenance.withdrawals import Withdrawals
from gateway.ports.adapter import AdapterEvent, ServiceRequest
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import OutputItem
from tests.support.core import Core
from tests.support.scripted import BS, Pause, Script, ScriptedAdapter, in_words, name_of


class WithdrawingAdapter(ScriptedAdapter):
    """`answers` are those of `withdraw`, in order; later ones succeed. `seen` is what arrived, in its order: the requests by
    their items, and the withdrawals by the names of their calls and the outcomes."""

    def __init__(self, *calls: Script, answers: Sequence[BaseException | Pause | None] = ()) -> None:
        super().__init__(BS, *calls)
        self._answers = list(answers)
        self.seen: list[str] = []

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        self.seen.append(", ".join(map(in_words, request.items)))
        async for event in super().call(request):
            yield event

    async def withdraw(self, call: Ongoing, outcomes: Sequence[OutputItem]) -> None:
        self.seen.append(" ".join(("withdraw", name_of(call), *map(in_words, outcomes))))
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Pause):
            await answer.pass_by()
        elif answer is not None:
            raise answer


def withdrawals(core: Core) -> Withdrawals:
    """Of all agents of the core, without jitter."""
    return Withdrawals(core.ledger, lambda: Agents(tuple(core.agents)), core.time.clock, core.duties, lambda: 0.0)
