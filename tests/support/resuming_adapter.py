"""A scripted backend whose calls continue without a listener."""

from collections.abc import AsyncGenerator, Sequence

from gateway.ports.adapter import AdapterEvent, ServiceRequest
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import Ownership
from tests.support.scripted import BR, Script, ScriptedAdapter, name_of


class ResumingAdapter(ScriptedAdapter):
    """`again`: the scripts of the resumed calls, each from its beginning; `resumed` are the names that were asked for.

    `confirms`: its answer to a cancellation; `cancelled` are the names.
    """

    def __init__(
        self,
        *calls: Script,
        again: Sequence[Script] = (),
        confirms: bool | BaseException = True,
        ownership: Ownership = BR,
    ) -> None:
        super().__init__(ownership, *calls)
        self._retold = ScriptedAdapter(ownership, *again)
        self._confirms = confirms
        self.resumed: list[str] = []
        self.cancelled: list[str] = []

    @property
    def requests_again(self) -> list[ServiceRequest]:
        """The requests of the resumed calls."""
        return self._retold.requests

    async def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        self.resumed.append(name_of(call))
        async for event in self._retold.call(request):
            yield event

    async def cancel(self, call: Ongoing) -> bool:
        self.cancelled.append(name_of(call))
        if isinstance(self._confirms, BaseException):
            raise self._confirms
        return self._confirms
