"""A scripted backend whose calls continue without a listener."""

from collections.abc import AsyncGenerator, Sequence

from gateway.ports.adapter import AdapterEvent, ServiceRequest
from gateway.ports.conversation import Ownership
from tests.support.scripted import BR, Script, ScriptedAdapter


class ResumingAdapter(ScriptedAdapter):
    """`again`: the scripts of the resumed calls, each from its beginning; `resumed` are the handles that were asked for.

    `confirms`: its answer to a cancellation; `cancelled` are the handles.
    """

    def __init__(
        self,
        *calls: Script,
        again: Sequence[Script] = (),
        confirms: bool | BaseException = True,
        ownership: Ownership = BR,
    ) -> None:
        super().__init__(ownership, *calls)
        self._retold = ScriptedAdapter(BR, *again)
        self._confirms = confirms
        self.resumed: list[str] = []
        self.cancelled: list[str] = []

    async def resume(self, request: ServiceRequest, pending: str) -> AsyncGenerator[AdapterEvent, None]:
        self.resumed.append(pending)
        async for event in self._retold.call(request):
            yield event

    async def cancel(self, pending: str) -> bool:
        self.cancelled.append(pending)
        if isinstance(self._confirms, BaseException):
            raise self._confirms
        return self._confirms
