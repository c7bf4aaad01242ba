"""The adapter that uses the conversations of a Responses server. The first call of a thread makes its conversation.

Law: after an interrupted call, the search for the items that reached the server starts after the last known item, so
that an earlier message with the same text is not mistaken for the new message.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from urllib.parse import quote

from adapters.http.failures import nothing_sent
from adapters.openai.responses.background import BackgroundService
from adapters.openai.responses.continuation import Chain, InConversation, check_conversation_id, unknown_handle
from adapters.openai.responses.request import encode_input
from adapters.openai.responses.service import CONVERSATIONS, FATES, PAGE_SIZE, RESPONSES, ResponsesService
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, AdapterEvent, CallStarted, ErrorClass, ServiceRequest
from gateway.ports.capabilities import Fate, Fetched, Ongoing, ProbeReport, Tail
from gateway.ports.conversation import HandleKind, Item, Ownership, StorageOwner

_UNHEARD = frozenset({ErrorClass.INTERRUPTED, ErrorClass.TIMED_OUT})
"""Of a call that failed so before its response was named, the response may be at work."""

_NOTES: dict[bool | None, tuple[str, ...]] = {
    True: ("it refuses one that it does not know",),
    False: ("it takes one that it does not know: one that it has lost goes on without its past",),
    None: (),
}


class ConversationAdapter(ResponsesService):
    ownership = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)
    kept = CONVERSATIONS
    check_handle = staticmethod(check_conversation_id)

    goes_on = False

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        if request.handle is None:
            return self._first_call(request)
        return self._respond(request, InConversation(request.handle, goes_on=self.goes_on))

    async def _first_call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        with nothing_sent():
            handle = await self._make_conversation()
        # The core resumes this generator when the id of the conversation is stored. The request is sent only then, so
        # that no conversation with content gets lost.
        yield CallStarted(handle)
        async with aclosing(
            self._respond(request, InConversation(handle, announced=True, goes_on=self.goes_on))
        ) as events:
            async for event in events:
                yield event

    async def _make_conversation(self) -> str:
        match await self._http.request_json("POST", self._address_of(CONVERSATIONS).link(CONVERSATIONS), {}):
            case {"id": str(name)} if name:
                return name
            case None:
                raise self._failures.error(ErrorClass.NOT_SERVED, "the service has no conversations (HTTP 404)")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a conversation was made without an id")

    async def tail(self, request: ServiceRequest) -> Tail | None:
        handle = request.handle
        if handle is None:
            return Tail(0)
        newest_first, whole = await self._newest(handle)
        last_item = request.state.get("last_item") if isinstance(request.state, dict) else None
        found = match_tail(newest_first, last_item, encode_input(request.items, request.state), whole=whole)
        if found is None:
            return None
        held, added = found
        answer = {"status": "completed", "output": added}
        parser = self._parser(InConversation(handle), request.items, request.state)
        return Tail(held, self._events_of(answer, parser) if added else ())

    async def _newest(self, handle: str) -> tuple[list[Json], bool]:
        """Returns the newest items, the newest first, and whether they are all items. Raises: AdapterError."""
        url = self._address(CONVERSATIONS, handle, "/items", f"order=desc&limit={PAGE_SIZE}")
        match await self._http.request_json("GET", url, handle=handle):
            case {"data": [*items], **rest} if all(isinstance(item, dict) for item in items):
                return items, rest.get("has_more") is False
            case None:
                raise self._failures.error(ErrorClass.HANDLE_NOT_FOUND, f"conversation {handle!r} is not there")
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "the items of a conversation are no list")

    async def probe(self) -> ProbeReport:
        listed = await self._lists_model()
        await self._probe_handle(Chain())
        handle = await self._make_conversation()
        try:
            refuses = await self._refuses(InConversation(unknown_handle(handle)))
        finally:
            await self.forget(handle)
        return ProbeReport(model=listed, streams=True, notes=("it keeps conversations", *_NOTES[refuses]))


class BackgroundConversation(ConversationAdapter, BackgroundService):
    """Responses in a conversation that the service continues without a listener. One whose name was not read is found in the
    service's list of responses, where there is one: at Microsoft Foundry, and not at OpenAI."""

    goes_on = True

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        names = Ongoing(request.handle)
        try:
            async with aclosing(super().call(request)) as events:
                async for event in events:
                    if isinstance(event, CallStarted):
                        names = Ongoing(event.handle or names.handle, event.run or names.run)
                    yield event
        except AdapterError as error:
            if names.handle is not None and names.run is None and error.kind in _UNHEARD:
                found = await self._at_work(names.handle)
                if found is not None:
                    yield CallStarted(run=found)
            raise

    async def tail(self, request: ServiceRequest) -> Tail | None:
        found = None if request.handle is None else await self._at_work(request.handle)
        if found is not None and await self._end_unheard(Ongoing(request.handle, found)):
            raise self._failures.error(ErrorClass.LOCKED, "a response of an earlier call was at work")
        return await super().tail(request)

    async def _end_unheard(self, call: Ongoing) -> bool:
        """Ends a response of an earlier call, to which nobody listens, and which would lock the conversation for as long as it
        works. Whether the service confirms it; where it does not, the next request shows whether the lock still holds."""
        try:
            return await self.cancel(call)
        except AdapterError:
            return False

    async def _at_work(self, handle: str) -> str | None:
        """The id of the response at work in the conversation, where the service lists responses and there is one. Source:
        Microsoft Foundry's REST reference, "List responses"."""
        query = f"conversation_id={quote(handle, safe='')}&order=desc&limit=1"
        try:
            listed = await self._http.request_json("GET", self._service.link(RESPONSES, query), handle=handle)
        except AdapterError:
            return None
        match listed:
            case {"data": [{"id": str(name), "status": str(status), "conversation": str() | {"id": str()} as within}]}:
                at = within if isinstance(within, str) else within["id"]
                return name if at == handle and FATES.get(status) is Fate.RUNNING else None
        return None

    def response_id(self, call: Ongoing) -> str:
        return call.run or ""

    def continuation(self, request: ServiceRequest, call: Ongoing) -> InConversation:
        return InConversation(call.handle or "", goes_on=True)

    async def fetch(self, call: Ongoing, sent: Sequence[Item] = ()) -> Fetched:
        """`sent` are the items of the request, as far as they are known."""
        return await self._look_up(self.response_id(call), InConversation(call.handle or "", goes_on=True), sent)


def match_tail(
    newest_first: Sequence[Json], last_item: str | None, wanted: Sequence[Json], *, whole: bool
) -> tuple[int, list[Json]] | None:
    """Returns the number of wanted items, from the first on, that the list holds after the last completed call, and the
    items that the backend put after them; None when the list does not reach back to that call.

    `last_item` is the id of the last item of that call, or None when no call has completed. `whole` says that the list
    reaches back to the beginning of the conversation.
    """
    known = next((index for index, item in enumerate(newest_first) if item.get("id") == last_item), None)
    if known is None and (last_item is not None or not whole):
        return None
    since = list(reversed(newest_first[:known]))
    signs, looked_for = [_sign(item) for item in since], [_sign(item) for item in wanted]
    held, start = max((_common(signs[start:], looked_for), start) for start in range(len(since) + 1))
    after = since[start + held :] if held else []
    end = next((index for index, item in enumerate(after) if item.get("role") == "user"), len(after))
    return held, after[:end]


def _common(signs: Sequence[Json], looked_for: Sequence[Json]) -> int:
    """The number of equal signs at the beginning of both sequences."""
    pairs = zip(signs, looked_for, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(signs), len(looked_for)))


def _sign(item: Json) -> Json:
    """The part of an item by which a sent item is recognised. The server adds ids, statuses and fields of contents to
    an item, so the sign has none of these."""
    content = item.get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    answered = item.get("call_id") or item.get("approval_request_id")
    return item.get("type", "message"), item.get("role"), answered, texts
