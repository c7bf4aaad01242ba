"""Responses that the service continues without a listener. Law: a response is known by its own id, whatever it continues."""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from adapters.openai.responses.continuation import Continuation
from adapters.openai.responses.service import FATES, RESPONSES, ResponsesService
from gateway.ports.adapter import AdapterError, AdapterEvent, ErrorClass, ServiceRequest, StartedOver
from gateway.ports.capabilities import Fate, Fetched, Ongoing
from gateway.ports.conversation import Item


class BackgroundService(ResponsesService):
    """Gives an adapter the abilities to resume and to cancel."""

    @abstractmethod
    def response_id(self, call: Ongoing) -> str: ...

    @abstractmethod
    def continuation(self, request: ServiceRequest, call: Ongoing) -> Continuation: ...

    @abstractmethod
    async def fetch(self, call: Ongoing, sent: Sequence[Item] = ()) -> Fetched: ...

    async def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        """Reads the stream of a response again, from its first event on, because the meaning of an event depends on the
        earlier events. A backend that was itself interrupted also sends all events again. The core knows which output
        was already shown. A stream that ends before its response, or is not kept, says nothing of the response, which is
        then asked for."""
        parser = self._parser(self.continuation(request, call), request.items, request.state)
        pending = self.response_id(call)
        opening = self._http.stream(self._address(RESPONSES, pending, query="stream=true"), handle=pending)
        begun = False
        try:
            async with aclosing(self._events(opening, parser)) as events:
                async for event in events:
                    begun = True
                    yield event
        except AdapterError as error:
            if not begun and error.kind is ErrorClass.BACKEND_FAILED:
                # This is a failure of the server or proxy that received the request, not of the response.
                raise error.as_kind(ErrorClass.INTERRUPTED) from error
            if error.kind is not ErrorClass.INTERRUPTED and not error.kind.meaning.conclusive:
                raise
            found = await self._found(call, request.items, error)
        else:
            return
        match found.fate:
            case Fate.COMPLETED:
                yield StartedOver()
                for event in found.events:
                    yield event
            case Fate.RUNNING:
                raise self._failures.error(ErrorClass.INTERRUPTED, "the response still runs, and cannot be listened to")
            case _:
                what = "the response has failed" if found.fate is Fate.FAILED else "the response is gone"
                raise self._failures.error(ErrorClass.BACKEND_FAILED, what)

    async def _found(self, call: Ongoing, sent: Sequence[Item], error: AdapterError) -> Fetched:
        """The response whose stream ended with `error`. Raises: AdapterError; `error` where the stream had only ended early and
        the look-up fails."""
        try:
            return await self.fetch(call, sent)
        except AdapterError as unanswered:
            if error.kind is ErrorClass.INTERRUPTED:
                raise error from unanswered
            raise

    async def cancel(self, call: Ongoing) -> bool:
        pending = self.response_id(call)
        url = self._address(RESPONSES, pending, "/cancel")
        match await self._http.request_json("POST", url, {}, handle=pending):
            case {"status": str(status)}:
                return FATES.get(status) not in (None, Fate.RUNNING)
        return False
