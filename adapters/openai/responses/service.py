"""The endpoints of one Responses server that all adapters of the wire use."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from urllib.parse import quote

import msgspec

from adapters.http.event_stream import EventStream
from adapters.openai.responses.continuation import Continuation
from adapters.openai.responses.request import encode_input, encode_tool
from adapters.openai.responses.settings import ResponsesSettings
from adapters.openai.responses.stream import ResponseParser
from adapters.openai.service import PROMPT, OpenAIService
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, AdapterEvent, ErrorClass, ServiceRequest

RESPONSES = "responses"
CONVERSATIONS = "conversations"
PAGE_SIZE = 100

# Foundry's begin with `ca`.
_PREFIXES = {"resp_": RESPONSES, "caresp_": RESPONSES, "conv_": CONVERSATIONS}


class ResponsesService(OpenAIService):
    """The base class of the adapters. `kept`: the kind of object that a handle of unknown form stands for."""

    kept = RESPONSES

    def __init__(self, settings: ResponsesSettings) -> None:
        super().__init__(settings, RESPONSES, settings.fields, encode_tool, settings.secrets())

    def _respond(self, request: ServiceRequest, continuation: Continuation) -> AsyncGenerator[AdapterEvent, None]:
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

    def _events_of(self, response: Json, continuation: Continuation) -> tuple[AdapterEvent, ...]:
        """The events of a call that would have ended with this response."""
        event = {"type": f"response.{response['status']}", "response": response}
        return tuple(ResponseParser(self._failures, continuation).receive(msgspec.json.encode(event)))

    async def forget(self, handle: str) -> None:
        kind = next((kind for prefix, kind in _PREFIXES.items() if handle.startswith(prefix)), self.kept)
        if kind is CONVERSATIONS:
            await self._forget_items(handle)
        await self._http.request_json("DELETE", self._address(kind, handle), handle=handle)

    async def _forget_items(self, handle: str) -> None:
        """Items outlive their conversation (source: OpenAI's API reference, deletion of a conversation). A service without
        this endpoint is asked only for the deletion of the conversation."""
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
            match await self._http.request_json("GET", f"{url}?order=asc&limit={PAGE_SIZE}{after}", handle=handle):
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

    async def _probe_handle(self, continuation: Continuation) -> str | None:
        """The handle of a response that is not kept, at its first output."""
        body = {"input": PROMPT} | continuation.fields | {"store": False}
        receive = ResponseParser(self._failures, continuation).receive
        return await self._start_answer(body, receive, handle=continuation.handle)

    async def _refuses(self, continuation: Continuation) -> bool | None:
        """Whether the service or this adapter notices an unknown handle. None: the service refuses for another reason."""
        try:
            await self._probe_handle(continuation)
        except AdapterError as error:
            if error.kind not in (ErrorClass.HANDLE_NOT_FOUND, ErrorClass.REJECTED):
                raise
            return True if error.kind is ErrorClass.HANDLE_NOT_FOUND else None
        return False
