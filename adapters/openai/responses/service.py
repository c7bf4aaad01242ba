"""The endpoints of one Responses server: a response, its fate, the conversations, and the deletion of both."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from urllib.parse import quote

import msgspec

from adapters.http.client import HttpClient
from adapters.http.event_stream import EventStream
from adapters.openai.failures import OpenAIFailures
from adapters.openai.probe import PROMPT, lists_model, start_answer
from adapters.openai.responses.continuation import Chain, Continuation, InConversation
from adapters.openai.responses.request import encode_input, encode_tool
from adapters.openai.responses.settings import ResponsesSettings
from adapters.openai.responses.stream import ResponseParser
from adapters.openai.responses.tail import match_tail
from adapters.openai.tools import ToolOffer
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, AdapterEvent, ErrorClass, ServiceRequest, StartedOver
from gateway.ports.capabilities import Fate, Fetched, Tail

RESPONSES = "responses"
CONVERSATIONS = "conversations"

# Foundry's begin with `ca`.
_PREFIXES = {"resp_": RESPONSES, "caresp_": RESPONSES, "conv_": CONVERSATIONS}
_FATES = {
    "queued": Fate.RUNNING,
    "in_progress": Fate.RUNNING,
    "completed": Fate.COMPLETED,
    "incomplete": Fate.COMPLETED,
    "failed": Fate.FAILED,
    "cancelled": Fate.FAILED,
}
_PAGE_SIZE = 100


class ResponsesService:
    def __init__(self, settings: ResponsesSettings) -> None:
        self._base_url = settings.base_url
        self._url = f"{settings.base_url}/{RESPONSES}"
        self._model = settings.model
        self._failures = OpenAIFailures(settings.secrets())
        self._offer = ToolOffer(settings.fields, encode_tool, self._failures)
        self._http = HttpClient(settings.timeouts, self._failures, settings.headers)

    def respond(self, request: ServiceRequest, continuation: Continuation) -> AsyncGenerator[AdapterEvent, None]:
        body = self._offer.fields(request.tools) | {"input": encode_input(request.items)} | continuation.fields
        opening = self._http.post_stream(self._url, msgspec.json.encode(body), handle=continuation.handle)
        return self._events(opening, ResponseParser(self._failures, continuation))

    async def _events(
        self, opening: AbstractAsyncContextManager[EventStream], parser: ResponseParser
    ) -> AsyncGenerator[AdapterEvent, None]:
        async with opening as stream:
            async for batch in stream:
                for data in batch:
                    events = parser.receive(data)
                    stream.answered = parser.ended
                    for event in events:
                        yield event
                    if parser.ended:
                        return
        raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended before the response did")

    async def resume(self, pending: str, continuation: Continuation) -> AsyncGenerator[AdapterEvent, None]:
        """From the first event on: the meaning of an event depends on those before it, and a backend that was itself
        interrupted sends all of them again. The core knows which output was shown already."""
        opening = self._http.get_stream(f"{self._address(RESPONSES, pending)}?stream=true", handle=pending)
        begun = False
        try:
            async with aclosing(self._events(opening, ResponseParser(self._failures, continuation))) as events:
                async for event in events:
                    begun = True
                    yield event
        except AdapterError as error:
            if not begun and error.kind is ErrorClass.BACKEND_FAILED:
                # Not the response failed, but the server or proxy that was asked for it.
                raise self._failures.error(
                    ErrorClass.INTERRUPTED, error.detail, backend_down=error.backend_down
                ) from error
            if not error.kind.meaning.conclusive:
                raise
        else:
            return
        # The stream is not kept (any more), but the response itself may be.
        found = await self.fetch(pending)
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

    async def cancel(self, pending: str) -> bool:
        url = f"{self._address(RESPONSES, pending)}/cancel"
        match await self._http.request_json("POST", url, {}, handle=pending):
            case {"status": str(status)}:
                return _FATES.get(status) not in (None, Fate.RUNNING)
        return False

    async def aclose(self) -> None:
        await self._http.aclose()

    # --- stored responses and conversations

    async def make_conversation(self) -> str:
        match await self._http.request_json("POST", f"{self._base_url}/{CONVERSATIONS}", {}):
            case {"id": str(name)} if name:
                return name
            case None:
                raise self._failures.error(ErrorClass.REJECTED, "the service has no conversations (HTTP 404)")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a conversation was made without an id")

    async def fetch(self, pending: str) -> Fetched:
        response = await self._http.request_json("GET", self._address(RESPONSES, pending), handle=pending)
        if response is None:
            return Fetched(Fate.GONE)
        status = response.get("status") if isinstance(response, dict) else None
        fate = _FATES.get(status) if isinstance(status, str) else None
        if fate is None:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"a response has the status {status!r}")
        # Its predecessor was verified before its id became a pending handle.
        chain = Chain(verifies=False)
        return Fetched(fate, self._events_of(response, chain) if fate is Fate.COMPLETED else ())

    async def tail(self, request: ServiceRequest, handle: str) -> Tail | None:
        newest_first, whole = await self._newest(handle)
        last_item = request.state.get("last_item") if isinstance(request.state, dict) else None
        found = match_tail(newest_first, last_item, encode_input(request.items), whole=whole)
        if found is None or not found.added:
            return None if found is None else Tail(found.held)
        answer = {"status": "completed", "output": found.added}
        return Tail(found.held, self._events_of(answer, InConversation(handle)))

    async def _newest(self, handle: str) -> tuple[list[Json], bool]:
        """Items, newest first, and whether these are all. Raises: AdapterError."""
        url = f"{self._address(CONVERSATIONS, handle)}/items?order=desc&limit={_PAGE_SIZE}"
        match await self._http.request_json("GET", url, handle=handle):
            case {"data": [*items], **rest} if all(isinstance(item, dict) for item in items):
                return items, rest.get("has_more") is False
            case None:
                raise self._failures.error(ErrorClass.HANDLE_NOT_FOUND, f"conversation {handle!r} is not there")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "the items of a conversation are no list")

    def _events_of(self, response: Json, continuation: Continuation) -> tuple[AdapterEvent, ...]:
        """The events of a call that would have ended with this response."""
        event = {"type": f"response.{response['status']}", "response": response}
        return tuple(ResponseParser(self._failures, continuation).receive(msgspec.json.encode(event)))

    async def forget(self, handle: str, *, default: str) -> None:
        """Deletes a response or a conversation. `default`: which, where the form of the handle does not tell."""
        kind = next((kind for prefix, kind in _PREFIXES.items() if handle.startswith(prefix)), default)
        if kind is CONVERSATIONS:
            await self._forget_items(handle)
        await self._http.request_json("DELETE", self._address(kind, handle), handle=handle)

    async def _forget_items(self, handle: str) -> None:
        """Items outlive their conversation. Source: OpenAI's API reference, deletion of a conversation.

        A service without this endpoint deletes as it does.
        """
        url = f"{self._address(CONVERSATIONS, handle)}/items"
        try:
            for name in await self._item_ids(url, handle):
                await self._http.request_json("DELETE", f"{url}/{quote(name, safe='')}", handle=handle)
        except AdapterError as error:
            if error.kind is not ErrorClass.REJECTED:
                raise

    async def _item_ids(self, url: str, handle: str) -> list[str]:
        """Of all items. Every page is read before the first deletion: a deleted item cannot be the start of a page."""
        names: dict[str, None] = {}
        after = ""
        while True:
            match await self._http.request_json("GET", f"{url}?order=asc&limit={_PAGE_SIZE}{after}", handle=handle):
                case {"data": [{"id": str()}, *_] as items, **rest}:
                    page = dict.fromkeys(str(item["id"]) for item in items if isinstance(item, dict) and "id" in item)
                case _:
                    return list(names)
            if not rest.get("has_more") or page.keys() <= names.keys():
                return list(names | page)
            names |= page
            after = f"&after={quote(next(reversed(page)), safe='')}"

    def _address(self, kind: str, handle: str) -> str:
        return f"{self._base_url}/{kind}/{quote(handle, safe='')}"

    # --- probes

    async def lists_model(self) -> bool | None:
        return await lists_model(self._http, self._base_url, self._model)

    async def start_answer(self, continuation: Continuation) -> str | None:
        """The handle of a response that is not kept, at its first output."""
        body = self._offer.fields() | {"input": PROMPT} | continuation.fields | {"store": False}
        receive = ResponseParser(self._failures, continuation).receive
        return await start_answer(self._http, self._url, body, receive, self._failures, handle=continuation.handle)

    async def refuses(self, continuation: Continuation) -> bool | None:
        """Whether the service or this adapter notices an unknown handle. None: the service refuses for another reason."""
        try:
            await self.start_answer(continuation)
        except AdapterError as error:
            match error.kind:
                case ErrorClass.HANDLE_NOT_FOUND:
                    return True
                case ErrorClass.REJECTED:
                    return None
            raise
        return False
