"""OpenAI's Responses API and the servers that speak it: the backend keeps the conversation (chained by
`previous_response_id`, or as a `conversation`), or the gateway does and sends it whole every time."""

import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from adapters.http.failures import Failures
from adapters.http.settings import OpenAISettings, refuse_fields
from adapters.openai.responses.handles import Chain, InConversation, refuse_for_chain, refuse_for_conversation
from adapters.openai.responses.service import CONVERSATIONS, RESPONSES, ResponsesService
from gateway.a2a.model import Json, Message
from gateway.config.agents import HistoryConfig, refuse_window
from gateway.ports.adapter import AdapterEvent, AdapterFactory, CallStarted, ServiceRequest
from gateway.ports.capabilities import Fetched, ProbeReport, Tail
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

_ENCRYPTED_REASONING = "reasoning.encrypted_content"

# These wait for an answer of the client.
_CLIENT_TOOLS = frozenset(
    {"function", "custom", "namespace", "local_shell", "apply_patch", "computer", "computer_use_preview"}
)


def _backend_tool(tool: dict[str, JsonValue]) -> dict[str, JsonValue]:
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        raise ValueError("a tool needs a `type`, such as web_search or mcp")
    if kind in _CLIENT_TOOLS:
        raise ValueError(
            f"tools of type {kind!r} run at the client: only tools that the service runs itself can be used"
        )
    return tool


Tool = Annotated[dict[str, JsonValue], AfterValidator(_backend_tool)]


def _owner(history: HistoryConfig) -> StorageOwner:
    return StorageOwner(history.owner or StorageOwner.BACKEND)


class ResponsesSettings(OpenAISettings):
    """An agent of type `openai-responses`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation: the backend by default.")
    max_output_tokens: int | None = Field(None, ge=1, description="Limit of an answer, reasoning included.")
    reasoning: dict[str, JsonValue] | None = Field(None, description="Effort and summary of reasoning models.")
    encrypted_reasoning: bool = Field(
        True, description="With a history kept by the gateway: ask for reasoning to send back. Some models refuse it."
    )
    tools: tuple[Tool, ...] = Field(
        (), alias="service_tools", description="Tools that the service runs itself, as its API describes them."
    )
    include: tuple[str, ...] = Field((), description="More output to ask for, as web_search_call.action.sources.")
    truncation: Literal["auto", "disabled"] | None = Field(None, description="What to do when the context is full.")
    metadata: dict[str, str] | None = Field(None, description="Kept with every response at the service.")
    conversation: bool = Field(
        False,
        description="Make one conversation at the service for each context and stay in it: no chain of responses.",
    )
    verify_chain: bool = Field(
        True, description="Fail when the service says that it did not go on from the response it was told to."
    )
    repeat_unknown: bool = Field(
        False,
        description="Send a request again when nobody knows what became of it: costs tokens, and nothing else without tools.",
    )

    background: bool = Field(
        False,
        description="Let the service go on when nobody listens, and listen again: a turn outlives its gateway process.",
    )

    @model_validator(mode="after")
    def _kept_while_nobody_listens(self) -> Self:
        if not self.background:
            return self
        if self.owner is StorageOwner.GATEWAY:
            raise ValueError(
                "'background: true' and 'history.owner: gateway' exclude each other: it has to be kept there"
            )
        if self.conversation:
            raise ValueError("'background: true' and 'conversation: true' exclude each other")
        if self.repeat_unknown:
            raise ValueError(
                "'background: true' and 'repeat_unknown' exclude each other: what goes on is listened to, not asked again"
            )
        return self

    @model_validator(mode="after")
    def _nothing_is_done_twice(self) -> Self:
        if self.repeat_unknown and self.tools:
            raise ValueError(
                "'repeat_unknown: true' and 'service_tools' exclude each other: what a tool did would be done twice"
            )
        return self

    @field_validator("history")
    @classmethod
    def _window_over_own_history(cls, history: HistoryConfig) -> HistoryConfig:
        refuse_window(history, _owner(history))
        return history

    @model_validator(mode="after")
    def _one_kind_of_handle(self) -> Self:
        if not self.conversation:
            return self
        if self.owner is StorageOwner.GATEWAY:
            raise ValueError("'conversation: true' and 'history.owner: gateway' exclude each other: who keeps it?")
        if "verify_chain" in self.model_fields_set:
            raise ValueError("'conversation: true' and 'verify_chain' exclude each other: there is no chain to verify")
        if "previous_response_id" in self.extra_body:
            raise ValueError("'conversation: true' and 'extra_body.previous_response_id' exclude each other")
        return self

    @model_validator(mode="after")
    def _no_decided_fields(self) -> Self:
        decided = {"input", "stream", "store", "previous_response_id", "conversation", "background"}
        refuse_fields(self.extra_body, decided | type(self).model_fields.keys())
        return self

    @property
    def owner(self) -> StorageOwner:
        return _owner(self.history)

    def secrets(self) -> Iterator[str]:
        yield self.key
        for tool in self.tools:
            headers = tool.get("headers")
            values = headers.values() if isinstance(headers, dict) else ()
            yield from (value for value in (tool.get("authorization"), *values) if isinstance(value, str))


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
        self._service = ResponsesService(settings, _fixed_fields(settings), Failures(settings.secrets()))

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        keeps = self._keeps if request.owner is None else request.owner is StorageOwner.BACKEND
        handle = request.handle if keeps else None
        return self._service.respond(request, Chain(handle, keeps=keeps, verifies=self._verifies))

    async def fetch(self, pending: str) -> Fetched:
        return await self._service.fetch(pending)

    async def forget(self, handle: str) -> None:
        await self._service.forget(handle, in_doubt=RESPONSES)

    def check_handle(self, handle: str) -> None:
        refuse_for_chain(handle)

    def named_handle(self, message: Message) -> str | None:
        """In the words of this API: a caller who knows it might believe that they are heard."""
        metadata = message.metadata or {}
        response, conversation = metadata.get("previous_response_id"), metadata.get("conversation")
        if isinstance(response, str):
            return response
        # A word of everyday language: only an id of the service is one.
        return conversation if isinstance(conversation, str) and conversation.startswith("conv_") else None

    async def probe(self) -> ProbeReport:
        service = self._service
        listed = await service.lists_model()
        handle = await service.begin(Chain())
        verifies = await self._verifies_chain(handle) if self._keeps and handle else None
        return ProbeReport(model=listed, streams=True, verifies_chain=verifies)

    async def _verifies_chain(self, handle: str) -> bool | None:
        """Whether a lost conversation would be noticed, by the service or here. Raises: AdapterError."""
        return await self._service.refuses(Chain(_unknown(handle), verifies=self._verifies))

    async def aclose(self) -> None:
        await self._service.aclose()


class BackgroundAdapter(ResponsesAdapter):
    """The same for responses that go on when nobody listens."""

    def resume(self, request: ServiceRequest, pending: str) -> AsyncGenerator[AdapterEvent, None]:
        return self._service.resume(pending, Chain(request.handle, verifies=self._verifies))

    async def cancel(self, pending: str) -> bool:
        return await self._service.cancel(pending)


class ConversationAdapter:
    """Speaks to one Responses server, in a conversation that it makes there for each thread."""

    def __init__(self, settings: ResponsesSettings) -> None:
        self.backend = settings.backend
        self.ownership = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)
        self._service = ResponsesService(settings, _fixed_fields(settings), Failures(settings.secrets()))

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        if request.handle is None:
            return self._begin(request)
        return self._service.respond(request, InConversation(request.handle))

    async def _begin(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        handle = await self._service.make_conversation()
        # The core goes on from here when it has stored the id: nothing is said in a conversation that could get lost.
        yield CallStarted(handle)
        async with aclosing(self._service.respond(request, InConversation(handle, announced=True))) as events:
            async for event in events:
                yield event

    async def tail(self, request: ServiceRequest) -> Tail | None:
        if request.handle is None:
            return Tail(0)
        return await self._service.tail(request, request.handle)

    async def forget(self, handle: str) -> None:
        await self._service.forget(handle, in_doubt=CONVERSATIONS)

    def check_handle(self, handle: str) -> None:
        refuse_for_conversation(handle)

    async def probe(self) -> ProbeReport:
        service = self._service
        listed = await service.lists_model()
        await service.begin(Chain())
        handle = await service.make_conversation()
        try:
            refuses = await service.refuses(InConversation(_unknown(handle)))
        finally:
            await service.forget(handle, in_doubt=CONVERSATIONS)
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
    """A service that only looks at the form of an id refuses one of another form, so this is a real one with another end."""
    return handle[:-8] + secrets.token_hex(4)


def build(settings: ResponsesSettings) -> ResponsesAdapter | ConversationAdapter:
    if settings.conversation:
        return ConversationAdapter(settings)
    return BackgroundAdapter(settings) if settings.background else ResponsesAdapter(settings)


def _fixed_fields(settings: ResponsesSettings) -> dict[str, Json]:
    """What every request says. Instructions and tools are among it: a chain does not carry them over."""
    keeps = settings.owner is StorageOwner.BACKEND
    wanted = (_ENCRYPTED_REASONING,) if not keeps and settings.encrypted_reasoning else ()
    optional = {
        "instructions": settings.instructions,
        "tools": settings.tools or None,
        "include": tuple(dict.fromkeys((*wanted, *settings.include))) or None,
        "max_output_tokens": settings.max_output_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "reasoning": settings.reasoning,
        "truncation": settings.truncation,
        "metadata": settings.metadata,
        "background": settings.background or None,
    }
    said = {name: value for name, value in optional.items() if value is not None}
    return {"model": settings.model, "stream": True, **said, **settings.extra_body}


factory = AdapterFactory(
    settings=ResponsesSettings,
    build=build,
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*"),
    output_modes=("text/plain", "image/png"),
)
