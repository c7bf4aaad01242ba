"""OpenAI's Responses API and the servers that speak it: the backend keeps the conversation (`store`, chained by
`previous_response_id`), or the gateway does and sends it whole every time."""

import secrets
from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Literal, Self

import msgspec
from pydantic import AfterValidator, Field, JsonValue, model_validator

from adapters._failures import Failures
from adapters._http import HttpClient
from adapters._probing import QUESTION, begin, lists_model
from adapters._responses_input import encode_input
from adapters._responses_reading import Reading
from adapters._settings import OpenAISettings, refuse_fields
from gateway.config import HistoryConfig
from gateway.items import HandleKind, Ownership, StorageOwner
from gateway.model import Json, Message
from gateway.ports import AdapterError, AdapterEvent, AdapterFactory, ErrorClass, ProbeReport, ServiceRequest

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
    if kind == "mcp" and tool.get("require_approval") != "never":
        raise ValueError("a tool of type 'mcp' needs `require_approval: never`: there is nobody to ask")
    return tool


Tool = Annotated[dict[str, JsonValue], AfterValidator(_backend_tool)]


class ResponsesSettings(OpenAISettings):
    """An agent of type `openai-responses`."""

    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation: the backend by default.")
    max_output_tokens: int | None = Field(None, ge=1, description="Limit of an answer, reasoning included.")
    reasoning: dict[str, JsonValue] | None = Field(None, description="Effort and summary of reasoning models.")
    encrypted_reasoning: bool = Field(
        True, description="With a history kept by the gateway: ask for reasoning to send back. Some models refuse it."
    )
    tools: tuple[Tool, ...] = Field((), description="Tools that the service runs itself, as its API describes them.")
    include: tuple[str, ...] = Field((), description="More output to ask for, as web_search_call.action.sources.")
    truncation: Literal["auto", "disabled"] | None = Field(None, description="What to do when the context is full.")
    metadata: dict[str, str] | None = Field(None, description="Kept with every response at the service.")
    verify_chain: bool = Field(
        True, description="Fail when the service says that it did not go on from the response it was told to."
    )

    @model_validator(mode="after")
    def _no_decided_fields(self) -> Self:
        decided = {"input", "stream", "store", "previous_response_id", "conversation", "background"}
        refuse_fields(self.extra_body, decided | type(self).model_fields.keys())
        return self

    @property
    def owner(self) -> StorageOwner:
        return StorageOwner(self.history.owner or StorageOwner.BACKEND)

    def secrets(self) -> Iterator[str]:
        yield self.key
        for tool in self.tools:
            headers = tool.get("headers")
            values = headers.values() if isinstance(headers, dict) else ()
            yield from (value for value in (tool.get("authorization"), *values) if isinstance(value, str))


class ResponsesAdapter:
    """Speaks to one Responses server."""

    def __init__(self, settings: ResponsesSettings) -> None:
        self._keeps = settings.owner is StorageOwner.BACKEND
        self.ownership = (
            Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
            if self._keeps
            else Ownership(StorageOwner.GATEWAY, HandleKind.NONE, opaque_replay=True)
        )
        self._base_url = settings.base_url
        self._url = f"{settings.base_url}/responses"
        self._fields = _fixed_fields(settings)
        self._verifies = settings.verify_chain
        self._failures = Failures(settings.secrets())
        self._http = HttpClient(settings.timeouts, self._failures, settings.key)

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        handle = request.handle if self._keeps else None
        body = self._fields | {"input": encode_input(request.items)}
        if handle is not None:
            body["previous_response_id"] = handle
        reading = Reading(self._failures, keeps=self._keeps, handle=handle, verifies=self._verifies)
        async with self._http.post_stream(self._url, msgspec.json.encode(body), handle=handle) as stream:
            async for batch in stream:
                for data in batch:
                    events = reading.receive(data)
                    stream.answered = reading.ended
                    for event in events:
                        yield event
                    if reading.ended:
                        return
        raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended before the response did")

    def named_handle(self, message: Message) -> str | None:
        """In the words of this API: a caller who knows it might believe that they are heard."""
        metadata = message.metadata or {}
        response, conversation = metadata.get("previous_response_id"), metadata.get("conversation")
        if isinstance(response, str):
            return response
        # A word of everyday language: only an id of the service is one.
        return conversation if isinstance(conversation, str) and conversation.startswith("conv_") else None

    async def probe(self) -> ProbeReport:
        listed = await lists_model(self._http, self._base_url, self._fields["model"])
        handle = await self._begin(None)
        verifies = await self._verifies_chain(handle) if self._keeps and handle else None
        return ProbeReport(model=listed, streams=True, verifies_chain=verifies)

    async def _verifies_chain(self, handle: str) -> bool | None:
        """Whether a lost conversation would be noticed, by the service or here. Raises: AdapterError.

        A service that only looks at the form of an id refuses one of another form, so this is a real one with another end.
        """
        try:
            await self._begin(handle[:-8] + secrets.token_hex(4))
        except AdapterError as error:
            match error.kind:
                case ErrorClass.HANDLE_NOT_FOUND:
                    return True
                case ErrorClass.REJECTED:
                    return None
            raise
        return False

    async def _begin(self, handle: str | None) -> str | None:
        body = self._fields | {"input": QUESTION, "store": False}
        if handle is not None:
            body["previous_response_id"] = handle
        reading = Reading(self._failures, keeps=True, handle=handle, verifies=self._verifies)
        return await begin(self._http, self._url, body, reading.receive, self._failures, handle=handle)

    async def aclose(self) -> None:
        await self._http.aclose()


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
    }
    said = {name: value for name, value in optional.items() if value is not None}
    return {"model": settings.model, "store": keeps, "stream": True, **said, **settings.extra_body}


factory = AdapterFactory(
    settings=ResponsesSettings,
    build=ResponsesAdapter,
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*"),
    output_modes=("text/plain", "image/png"),
)
