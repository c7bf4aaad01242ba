"""The endpoints of one Responses server: a response, what became of it, the conversations beside, and their deletion."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from urllib.parse import quote

import msgspec

from adapters.http.client import EventStream, HttpClient
from adapters.http.failures import Failures
from adapters.http.settings import OpenAISettings
from adapters.openai.responses.handles import Chain, Continuing, InConversation
from adapters.openai.responses.items import encode_input, encode_tool, find
from adapters.openai.responses.stream import Reading
from adapters.openai.shared import QUESTION, Offer, begin, lists_model
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
_LONGEST_LIST = 100


class ResponsesService:
    """`fields` are what every request for a response says."""

    def __init__(self, settings: OpenAISettings, fields: dict[str, Json], failures: Failures) -> None:
        self._base_url = settings.base_url
        self._url = f"{settings.base_url}/{RESPONSES}"
        self._model = settings.model
        self._offer = Offer(fields, encode_tool, failures)
        self._failures = failures
        self._http = HttpClient(settings.timeouts, failures, settings.key)

    def respond(self, request: ServiceRequest, continuing: Continuing) -> AsyncGenerator[AdapterEvent, None]:
        body = self._offer.fields(request.tools) | {"input": encode_input(request.items)} | continuing.fields
        asked = self._http.post_stream(self._url, msgspec.json.encode(body), handle=continuing.handle)
        return self._listen(asked, Reading(self._failures, continuing))

    async def _listen(
        self, asked: AbstractAsyncContextManager[EventStream], reading: Reading
    ) -> AsyncGenerator[AdapterEvent, None]:
        async with asked as stream:
            async for batch in stream:
                for data in batch:
                    events = reading.receive(data)
                    stream.answered = reading.ended
                    for event in events:
                        yield event
                    if reading.ended:
                        return
        raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended before the response did")

    async def resume(self, pending: str, continuing: Continuing) -> AsyncGenerator[AdapterEvent, None]:
        """From its first event on: what an event means depends on those before it, and a backend that was itself
        interrupted tells everything again. What was shown of it by now is for the core to know."""
        asked = self._http.get_stream(f"{self._address(RESPONSES, pending)}?stream=true", handle=pending)
        told = False
        try:
            async with aclosing(self._listen(asked, Reading(self._failures, continuing))) as events:
                async for event in events:
                    told = True
                    yield event
        except AdapterError as error:
            if not told and error.kind is ErrorClass.BACKEND_FAILED:
                # Not the response: whoever stands before it.
                raise self._failures.error(
                    ErrorClass.INTERRUPTED, error.detail, backend_down=error.backend_down
                ) from error
            if not error.kind.meaning.conclusive:
                raise
        else:
            return
        # Its stream is not kept (any more): the response itself says what there is.
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
        match await self._http.ask("POST", f"{self._address(RESPONSES, pending)}/cancel", {}, handle=pending):
            case {"status": str(status)}:
                return _FATES.get(status) not in (None, Fate.RUNNING)
        return False

    async def aclose(self) -> None:
        await self._http.aclose()

    # --- what is kept

    async def make_conversation(self) -> str:
        match await self._http.ask("POST", f"{self._base_url}/{CONVERSATIONS}", {}):
            case {"id": str(name)} if name:
                return name
            case None:
                raise self._failures.error(ErrorClass.REJECTED, "the service has no conversations (HTTP 404)")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a conversation was made without an id")

    async def fetch(self, pending: str) -> Fetched:
        response = await self._http.ask("GET", self._address(RESPONSES, pending), handle=pending)
        if response is None:
            return Fetched(Fate.GONE)
        status = response.get("status") if isinstance(response, dict) else None
        fate = _FATES.get(status) if isinstance(status, str) else None
        if fate is None:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"a response has the status {status!r}")
        # It went on from where it was told to, or its id would not have become a pending handle.
        chain = Chain(verifies=False)
        return Fetched(fate, self._read(response, chain) if fate is Fate.COMPLETED else ())

    async def tail(self, request: ServiceRequest, handle: str) -> Tail | None:
        newest_first, whole = await self._newest(handle)
        last_item = request.state.get("last_item") if isinstance(request.state, dict) else None
        found = find(newest_first, last_item, encode_input(request.items), whole=whole)
        if found is None or not found.added:
            return None if found is None else Tail(found.held)
        answer = {"status": "completed", "output": found.added}
        return Tail(found.held, self._read(answer, InConversation(handle)))

    async def _newest(self, handle: str) -> tuple[list[Json], bool]:
        """Items, newest first, and whether these are all. Raises: AdapterError."""
        url = f"{self._address(CONVERSATIONS, handle)}/items?order=desc&limit={_LONGEST_LIST}"
        match await self._http.ask("GET", url, handle=handle):
            case {"data": [*items], **rest} if all(isinstance(item, dict) for item in items):
                return items, rest.get("has_more") is False
            case None:
                raise self._failures.error(ErrorClass.HANDLE_NOT_FOUND, f"conversation {handle!r} is not there")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "the items of a conversation are no list")

    def _read(self, response: Json, continuing: Continuing) -> tuple[AdapterEvent, ...]:
        """What a call would have given that ended with this response."""
        event = {"type": f"response.{response['status']}", "response": response}
        return tuple(Reading(self._failures, continuing).receive(msgspec.json.encode(event)))

    async def forget(self, handle: str, *, in_doubt: str) -> None:
        """Deletes a response, or a conversation: `in_doubt` says which, where the form of the handle does not."""
        kind = next((kind for prefix, kind in _PREFIXES.items() if handle.startswith(prefix)), in_doubt)
        if kind is CONVERSATIONS:
            await self._forget_items(handle)
        await self._http.ask("DELETE", self._address(kind, handle), handle=handle)

    async def _forget_items(self, handle: str) -> None:
        """They outlive their conversation. Source: OpenAI's API reference, deletion of a conversation.

        A service that does not offer this is left with what it does.
        """
        url = f"{self._address(CONVERSATIONS, handle)}/items"
        try:
            for name in await self._names(url, handle):
                await self._http.ask("DELETE", f"{url}/{quote(name, safe='')}", handle=handle)
        except AdapterError as error:
            if error.kind is not ErrorClass.REJECTED:
                raise

    async def _names(self, url: str, handle: str) -> list[str]:
        """Of all items, page by page: what is gone cannot say what comes behind it."""
        names: dict[str, None] = {}
        after = ""
        while True:
            match await self._http.ask("GET", f"{url}?order=asc&limit={_LONGEST_LIST}{after}", handle=handle):
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

    # --- what a probe asks

    async def lists_model(self) -> bool | None:
        return await lists_model(self._http, self._base_url, self._model)

    async def begin(self, continuing: Continuing) -> str | None:
        """The handle of a response that is not kept, as soon as it says anything."""
        body = self._offer.fields() | {"input": QUESTION} | continuing.fields | {"store": False}
        reading = Reading(self._failures, continuing)
        return await begin(self._http, self._url, body, reading.receive, self._failures, handle=continuing.handle)

    async def refuses(self, continuing: Continuing) -> bool | None:
        """Whether what the service cannot know is noticed, by the service or here. None: it refuses for another reason."""
        try:
            await self.begin(continuing)
        except AdapterError as error:
            match error.kind:
                case ErrorClass.HANDLE_NOT_FOUND:
                    return True
                case ErrorClass.REJECTED:
                    return None
            raise
        return False
