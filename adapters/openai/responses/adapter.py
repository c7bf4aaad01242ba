"""The adapter of type `openai-responses`: OpenAI's Responses API and compatible servers. The backend keeps the
conversation (as a chain of responses, or as a `conversation`), or the gateway does and sends it whole every time.
"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing

from adapters.openai.responses.continuation import Chain, InConversation
from adapters.openai.responses.handles import check_conversation_id, check_response_id
from adapters.openai.responses.service import CONVERSATIONS, RESPONSES, ResponsesService
from adapters.openai.responses.settings import ResponsesSettings
from gateway.a2a.model import Message
from gateway.ports.adapter import AdapterEvent, AdapterFactory, CallStarted, ServiceRequest
from gateway.ports.capabilities import Fetched, ProbeReport, Tail
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner


class ResponsesAdapter:
    """Speaks to one Responses server: in a chain of responses, or with the whole conversation."""

    def __init__(self, settings: ResponsesSettings) -> None:
        self.backend = settings.backend
        self._keeps = settings.owner is StorageOwner.BACKEND
        self.ownership = (
            Ownership(
                StorageOwner.BACKEND, HandleKind.ROTATING, repeatable=settings.repeat_unknown or None, either=True
            )
            if self._keeps
            else Ownership(StorageOwner.GATEWAY, HandleKind.NONE, opaque_replay=True, either=True)
        )
        self._verifies = settings.verify_chain
        self._service = ResponsesService(settings)

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        keeps = self._keeps if request.owner is None else request.owner is StorageOwner.BACKEND
        handle = request.handle if keeps else None
        return self._service.respond(request, Chain(handle, keeps=keeps, verifies=self._verifies))

    async def fetch(self, pending: str) -> Fetched:
        return await self._service.fetch(pending)

    async def forget(self, handle: str) -> None:
        await self._service.forget(handle, default=RESPONSES)

    def check_handle(self, handle: str) -> None:
        check_response_id(handle)

    def named_handle(self, message: Message) -> str | None:
        """A caller who uses the names of this API expects that the agent continues there."""
        metadata = message.metadata or {}
        response, conversation = metadata.get("previous_response_id"), metadata.get("conversation")
        if isinstance(response, str):
            return response
        # "conversation" is an everyday word: its value counts only if it is an id of the service.
        return conversation if isinstance(conversation, str) and conversation.startswith("conv_") else None

    async def probe(self) -> ProbeReport:
        service = self._service
        listed = await service.lists_model()
        handle = await service.start_answer(Chain())
        # Whether the service or this adapter would notice a lost conversation.
        verifies = (
            await service.refuses(Chain(_unknown(handle), verifies=self._verifies)) if self._keeps and handle else None
        )
        return ProbeReport(model=listed, streams=True, verifies_chain=verifies)

    async def aclose(self) -> None:
        await self._service.aclose()


class BackgroundAdapter(ResponsesAdapter):
    """The same for responses that the service continues without a listener."""

    def resume(self, request: ServiceRequest, pending: str) -> AsyncGenerator[AdapterEvent, None]:
        return self._service.resume(pending, Chain(request.handle, verifies=self._verifies))

    async def cancel(self, pending: str) -> bool:
        return await self._service.cancel(pending)


class ConversationAdapter:
    """Speaks to one Responses server: each thread has a conversation, which its first call makes."""

    ownership = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)

    def __init__(self, settings: ResponsesSettings) -> None:
        self.backend = settings.backend
        self._service = ResponsesService(settings)

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        if request.handle is None:
            return self._first_call(request)
        return self._service.respond(request, InConversation(request.handle))

    async def _first_call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        handle = await self._service.make_conversation()
        # The core continues once the id is stored: no request goes to a conversation that could get lost.
        yield CallStarted(handle)
        async with aclosing(self._service.respond(request, InConversation(handle, announced=True))) as events:
            async for event in events:
                yield event

    async def tail(self, request: ServiceRequest) -> Tail | None:
        if request.handle is None:
            return Tail(0)
        return await self._service.tail(request, request.handle)

    async def forget(self, handle: str) -> None:
        await self._service.forget(handle, default=CONVERSATIONS)

    def check_handle(self, handle: str) -> None:
        check_conversation_id(handle)

    async def probe(self) -> ProbeReport:
        service = self._service
        listed = await service.lists_model()
        await service.start_answer(Chain())
        handle = await service.make_conversation()
        try:
            refuses = await service.refuses(InConversation(_unknown(handle)))
        finally:
            await service.forget(handle, default=CONVERSATIONS)
        return ProbeReport(model=listed, streams=True, notes=_CONVERSATION_NOTES[refuses])

    async def aclose(self) -> None:
        await self._service.aclose()


_CONVERSATION_NOTES: dict[bool | None, tuple[str, ...]] = {
    True: ("it keeps conversations", "it refuses one that it does not know"),
    False: (
        "it keeps conversations",
        "it takes one that it does not know: one that it has lost goes on without its past",
    ),
    None: ("it keeps conversations",),
}


def _unknown(handle: str) -> str:
    """A real id with another end: a service that checks only the form of ids would refuse any other text."""
    return handle[:-8] + secrets.token_hex(4)


def build(settings: ResponsesSettings) -> ResponsesAdapter | ConversationAdapter:
    if settings.conversation:
        return ConversationAdapter(settings)
    return BackgroundAdapter(settings) if settings.background else ResponsesAdapter(settings)


factory = AdapterFactory(
    settings=ResponsesSettings,
    build=build,
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*"),
    output_modes=("text/plain", "image/png"),
)
