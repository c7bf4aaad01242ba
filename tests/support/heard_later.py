"""Scripted backends that can tell what became of a call whose end nobody heard."""

from collections.abc import Sequence

from gateway.ports.adapter import AdapterError, ServiceRequest
from gateway.ports.capabilities import Fetched, Tail
from gateway.ports.conversation import Ownership
from tests.support.scripted import BR, BS, Pause, Script, ScriptedAdapter


class FetchingAdapter(ScriptedAdapter):
    """Of a rotating handle. `found`: what is told, one after the other; `fetched` what was asked for."""

    def __init__(self, *calls: Script, found: Sequence[Fetched | AdapterError] = (), ownership: Ownership = BR) -> None:
        super().__init__(ownership, *calls)
        self._found = list(found)
        self.fetched: list[str] = []
        self.held: Pause | None = None

    async def fetch(self, pending: str) -> Fetched:
        self.fetched.append(pending)
        if self.held is not None:
            await self.held.pass_by()
        told = self._found.pop(0)
        if isinstance(told, AdapterError):
            raise told
        return told


class TailAdapter(ScriptedAdapter):
    """Of a static handle. `found`: what is told, one after the other; `asked` what for."""

    def __init__(self, *calls: Script, found: Sequence[Tail | AdapterError | None] = ()) -> None:
        super().__init__(BS, *calls)
        self._found = list(found)
        self.asked: list[ServiceRequest] = []

    async def tail(self, request: ServiceRequest) -> Tail | None:
        self.asked.append(request)
        told = self._found.pop(0)
        if isinstance(told, AdapterError):
            raise told
        return told
