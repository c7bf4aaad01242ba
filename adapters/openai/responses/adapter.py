"""The adapter of type `openai-responses`: OpenAI's Responses API and compatible servers. The backend keeps the
conversation (as a chain of responses, or as a `conversation`), or the gateway does and sends it whole every time.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from adapters.openai.responses.continuation import Chain, check_response_id, unknown_handle
from adapters.openai.responses.conversation import ConversationAdapter
from adapters.openai.responses.service import RESPONSES, ResponsesService, ResponsesSettings
from gateway.a2a.model import Message
from gateway.ports.adapter import AdapterError, AdapterEvent, AdapterFactory, ErrorClass, ServiceRequest, StartedOver
from gateway.ports.capabilities import Fate, Fetched, Ongoing, ProbeReport
from gateway.ports.conversation import HandleKind, Item, Ownership, StorageOwner

_FATES = {
    "queued": Fate.RUNNING,
    "in_progress": Fate.RUNNING,
    "completed": Fate.COMPLETED,
    "incomplete": Fate.COMPLETED,
    "failed": Fate.FAILED,
    "cancelled": Fate.FAILED,
}


class ResponsesAdapter(ResponsesService):
    """A chain of responses, or the whole conversation in each request."""

    check_handle = staticmethod(check_response_id)

    def __init__(self, settings: ResponsesSettings) -> None:
        super().__init__(settings)
        self._keeps = settings.owner is StorageOwner.BACKEND
        self._verifies = settings.verify_chain
        handle = HandleKind.ROTATING if self._keeps else HandleKind.NONE
        self.ownership = Ownership(
            settings.owner, handle, opaque_replay=not self._keeps, repeatable=settings.repeatable, either=True
        )

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        keeps = self._keeps if request.owner is None else request.owner is StorageOwner.BACKEND
        handle = request.handle if keeps else None
        return self._respond(request, Chain(handle, keeps=keeps, verifies=self._verifies))

    async def fetch(self, call: Ongoing, sent: Sequence[Item] = ()) -> Fetched:
        """`sent` are the items of the request, as far as they are known."""
        response = await self._http.request_json("GET", self._address_of(call), handle=call.handle)
        if response is None:
            return Fetched(Fate.GONE)
        status = response.get("status") if isinstance(response, dict) else None
        fate = _FATES.get(status) if isinstance(status, str) else None
        if fate is None:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"a response has the status {status!r}")
        # Its predecessor was verified before its id became a pending handle.
        parser = self._parser(Chain(verifies=False), sent)
        return Fetched(fate, self._events_of(response, parser) if fate is Fate.COMPLETED else ())

    def _address_of(self, call: Ongoing) -> str:
        return self._address(RESPONSES, call.handle or "")

    def named_handle(self, message: Message) -> str | None:
        """A caller who uses the names of this API expects that the agent continues there."""
        metadata = message.metadata or {}
        response, conversation = metadata.get("previous_response_id"), metadata.get("conversation")
        if isinstance(response, str):
            return response
        # "conversation" is an everyday word: its value counts only if it is an id of the service.
        return conversation if isinstance(conversation, str) and conversation.startswith("conv_") else None

    async def probe(self) -> ProbeReport:
        listed = await self._lists_model()
        handle = await self._probe_handle(Chain())
        verifies = None
        if self._keeps and handle:
            # Whether the service or this adapter would notice a lost conversation.
            verifies = await self._refuses(Chain(unknown_handle(handle), verifies=self._verifies))
        return ProbeReport(model=listed, streams=True, verifies_chain=verifies)


class BackgroundAdapter(ResponsesAdapter):
    """Responses that the service continues without a listener."""

    async def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        """Reads the stream of a response again, from its first event on, because the meaning of an event depends on the
        earlier events. A backend that was itself interrupted also sends all events again. The core knows which output
        was already shown. A stream that ends before its response, or is not kept, says nothing of the response, which is
        then asked for."""
        parser = self._parser(Chain(request.handle, verifies=self._verifies), request.items)
        opening = self._http.stream(f"{self._address_of(call)}?stream=true", handle=call.handle)
        begun = False
        try:
            async with aclosing(self._events(opening, parser)) as events:
                async for event in events:
                    begun = True
                    yield event
        except AdapterError as error:
            if not begun and error.kind is ErrorClass.BACKEND_FAILED:
                # This is a failure of the server or proxy that received the request, not of the response.
                raise self._failures.error(
                    ErrorClass.INTERRUPTED, error.detail, backend_down=error.backend_down
                ) from error
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
        url = f"{self._address_of(call)}/cancel"
        match await self._http.request_json("POST", url, {}, handle=call.handle):
            case {"status": str(status)}:
                return _FATES.get(status) not in (None, Fate.RUNNING)
        return False


def build(settings: ResponsesSettings) -> ResponsesAdapter | ConversationAdapter:
    if settings.conversation:
        return ConversationAdapter(settings)
    return BackgroundAdapter(settings) if settings.background else ResponsesAdapter(settings)


factory = AdapterFactory(
    settings=ResponsesSettings,
    build=build,
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*"),
    output_modes=("text/plain", "image/png"),
    approvals=lambda settings: settings.asks,
)
