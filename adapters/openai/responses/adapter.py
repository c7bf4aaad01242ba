"""The adapter of type `openai-responses`: OpenAI's Responses API and compatible servers. The backend keeps the
conversation (as a chain of responses, or as a `conversation`), or the gateway does and sends it whole every time.
"""

from collections.abc import AsyncGenerator, Sequence

from adapters.openai.responses.background import BackgroundService
from adapters.openai.responses.continuation import Chain, check_response_id, unknown_handle
from adapters.openai.responses.conversation import BackgroundConversation, ConversationAdapter
from adapters.openai.responses.service import ResponsesService, ResponsesSettings, ResponsesWire
from gateway.a2a.model import Message
from gateway.ports.adapter import AdapterEvent, AdapterFactory, ServiceRequest, StateKind
from gateway.ports.capabilities import Fetched, Ongoing, ProbeReport
from gateway.ports.conversation import HandleKind, Item, Ownership, StorageOwner


class ResponsesAdapter(ResponsesService):
    """A chain of responses, or the whole conversation in each request."""

    check_handle = staticmethod(check_response_id)

    def __init__(self, wire: ResponsesWire) -> None:
        super().__init__(wire)
        self._keeps = wire.owner is StorageOwner.BACKEND
        self._verifies = wire.verify_chain
        handle = HandleKind.ROTATING if self._keeps else HandleKind.NONE
        self.ownership = Ownership(
            wire.owner, handle, opaque_replay=not self._keeps, repeatable=wire.repeatable, either=True
        )

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        keeps = self._keeps if request.owner is None else request.owner is StorageOwner.BACKEND
        handle = request.handle if keeps else None
        return self._respond(request, Chain(handle, keeps=keeps, verifies=self._verifies))

    async def fetch(self, call: Ongoing, sent: Sequence[Item] = ()) -> Fetched:
        """`sent` are the items of the request, as far as they are known."""
        # Its predecessor was verified before its id became a pending handle.
        return await self._look_up(call.handle or "", Chain(verifies=False), sent)

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


class BackgroundAdapter(ResponsesAdapter, BackgroundService):
    """A chain of responses that the service continues without a listener."""

    def response_id(self, call: Ongoing) -> str:
        return call.handle or ""

    def continuation(self, request: ServiceRequest, call: Ongoing) -> Chain:
        return Chain(request.handle, verifies=self._verifies)


def adapter_of(wire: ResponsesWire, *, conversation: bool, background: bool) -> ResponsesAdapter | ConversationAdapter:
    if conversation:
        return BackgroundConversation(wire) if background else ConversationAdapter(wire)
    return BackgroundAdapter(wire) if background else ResponsesAdapter(wire)


def build(settings: ResponsesSettings) -> ResponsesAdapter | ConversationAdapter:
    return adapter_of(settings.wire, conversation=settings.conversation, background=settings.background)


factory = AdapterFactory(
    settings=ResponsesSettings,
    build=build,
    summary="Responses: OpenAI, Azure OpenAI, Microsoft Foundry, OGX and other servers",
    states=(
        StateKind(StorageOwner.BACKEND, HandleKind.ROTATING, ResponsesAdapter),
        StateKind(StorageOwner.BACKEND, HandleKind.ROTATING, BackgroundAdapter, "background: true"),
        StateKind(StorageOwner.BACKEND, HandleKind.STATIC, ConversationAdapter, "conversation: true"),
        StateKind(
            StorageOwner.BACKEND, HandleKind.STATIC, BackgroundConversation, "conversation: true, background: true"
        ),
        StateKind(StorageOwner.GATEWAY, HandleKind.NONE, ResponsesAdapter, "history: {owner: gateway}"),
    ),
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*"),
    output_modes=("text/plain", "image/png"),
    approvals=lambda settings: settings.asks,
)
