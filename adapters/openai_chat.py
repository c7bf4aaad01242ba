"""Chat Completions, OpenAI's own and every server that speaks it (Ollama, vLLM, llama.cpp, LM Studio and others). They
keep nothing: the gateway keeps the conversation and sends it whole every time."""

from collections.abc import AsyncGenerator
from typing import Literal, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from adapters._chat_messages import encode_messages, encode_tool
from adapters._chat_reading import Reading
from adapters._failures import Failures
from adapters._http import HttpClient
from adapters._probing import QUESTION, begin, lists_model
from adapters._settings import OpenAISettings, refuse_fields
from adapters._tools import Offer, tool_names
from gateway.abilities import ProbeReport
from gateway.config_agents import HistoryConfig
from gateway.items import HandleKind, Ownership, StorageOwner
from gateway.model import Json
from gateway.ports import AdapterEvent, AdapterFactory, CallStarted, ServiceRequest


class ChatSettings(OpenAISettings):
    """An agent of type `openai-chat`."""

    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation: always the gateway.")
    instructions_role: Literal["system", "developer"] = Field("system", description="Role of the instructions.")
    max_tokens: int | None = Field(
        None, ge=1, description="Limit of an answer; OpenAI's newer models want the next one."
    )
    max_completion_tokens: int | None = Field(None, ge=1, description="Limit of an answer, reasoning included.")
    reasoning_effort: str | None = Field(None, description="How much a reasoning model thinks.")
    include_usage: bool = Field(True, description="Ask for the number of tokens; some servers refuse the question.")

    @field_validator("history")
    @classmethod
    def _kept_by_the_gateway(cls, history: HistoryConfig) -> HistoryConfig:
        if history.owner == "backend":
            raise ValueError("a Chat Completions server keeps no conversation: the owner can only be 'gateway'")
        return history

    @model_validator(mode="after")
    def _no_decided_fields(self) -> Self:
        refuse_fields(self.extra_body, {"messages", "stream", "stream_options", "n"} | type(self).model_fields.keys())
        return self

    @model_validator(mode="after")
    def _tools_have_names_of_their_own(self) -> Self:
        tools = self.extra_body.get("tools", [])
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise ValueError("extra_body.tools must be a list of objects")
        names = tool_names(tool for tool in tools if isinstance(tool, dict))
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two of extra_body.tools are called {twice!r}")
        return self


class ChatAdapter:
    """Speaks to one Chat Completions server."""

    ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)

    def __init__(self, settings: ChatSettings) -> None:
        self._base_url = settings.base_url
        self._url = f"{settings.base_url}/chat/completions"
        self._model = settings.model
        self._instructions: list[Json] = (
            [{"role": settings.instructions_role, "content": settings.instructions}] if settings.instructions else []
        )
        self._failures = Failures((settings.key,))
        self._offer = Offer(_fixed_fields(settings), encode_tool, self._failures)
        self._http = HttpClient(settings.timeouts, self._failures, settings.key)

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        messages = [*self._instructions, *encode_messages(request.items)]
        body = self._offer.fields(request.tools) | {"messages": messages}
        reading = Reading(self._failures)
        async with self._http.post_stream(self._url, msgspec.json.encode(body)) as stream:
            yield CallStarted()
            async for batch in stream:
                for data in batch:
                    for event in reading.receive(data):
                        yield event
                if reading.ended:
                    break
            last = reading.finish()
            stream.answered = True
            for event in last:
                yield event

    async def probe(self) -> ProbeReport:
        listed = await lists_model(self._http, self._base_url, self._model)
        body = self._offer.fields() | {"messages": [*self._instructions, {"role": "user", "content": QUESTION}]}
        await begin(self._http, self._url, body, Reading(self._failures).receive, self._failures)
        return ProbeReport(model=listed, streams=True)

    async def aclose(self) -> None:
        await self._http.aclose()


def _fixed_fields(settings: ChatSettings) -> dict[str, Json]:
    optional = {
        "stream_options": {"include_usage": True} if settings.include_usage else None,
        "max_tokens": settings.max_tokens,
        "max_completion_tokens": settings.max_completion_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "reasoning_effort": settings.reasoning_effort,
    }
    said = {name: value for name, value in optional.items() if value is not None}
    return {"model": settings.model, "stream": True, **said, **settings.extra_body}


factory = AdapterFactory(
    settings=ChatSettings,
    build=ChatAdapter,
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*", "audio/*"),
    output_modes=("text/plain",),
)
