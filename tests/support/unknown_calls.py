"""Scripted backends that can be asked for the outcome of an earlier call."""

from collections.abc import Sequence

from gateway.ports.adapter import AdapterError, ServiceRequest
from gateway.ports.capabilities import Fetched, Ongoing, Tail
from gateway.ports.conversation import Ownership
from tests.support.scripted import BR, BS, Pause, Script, ScriptedAdapter, name_of


class FetchingAdapter(ScriptedAdapter):
    """`found`: the answers, in order; `fetched`: the names that were asked for."""

    def __init__(self, *calls: Script, found: Sequence[Fetched | AdapterError] = (), ownership: Ownership = BR) -> None:
        super().__init__(ownership, *calls)
        self._found = list(found)
        self.fetched: list[str] = []
        self.held: Pause | None = None

    async def fetch(self, call: Ongoing) -> Fetched:
        self.fetched.append(name_of(call))
        if self.held is not None:
            await self.held.pass_by()
        answer = self._found.pop(0)
        if isinstance(answer, AdapterError):
            raise answer
        return answer


class TailAdapter(ScriptedAdapter):
    """With a static handle. `found`: the answers, in order; `asked`: the requests. A second look before the same request finds
    the same as the first, unless the conversation `moves`."""

    def __init__(self, *calls: Script, found: Sequence[Tail | AdapterError | None] = (), moves: bool = False) -> None:
        super().__init__(BS, *calls)
        self._found = list(found)
        self._moves = moves
        self._same: tuple[int, Tail | AdapterError | None] | None = None
        self.asked: list[ServiceRequest] = []

    async def tail(self, request: ServiceRequest) -> Tail | None:
        if self._same is not None and self._same[0] == len(self.requests):
            answer = self._same[1]
        else:
            self.asked.append(request)
            answer = self._found.pop(0)
        told = not isinstance(answer, AdapterError) or answer.kind.meaning.conclusive
        self._same = (len(self.requests), answer) if told and not self._moves else None
        if isinstance(answer, AdapterError):
            raise answer
        return answer
