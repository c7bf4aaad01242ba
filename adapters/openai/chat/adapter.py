"""The adapter of type `openai-chat`, for OpenAI's Chat Completions and for every compatible server (Ollama, vLLM,
llama.cpp, LM Studio and others). These servers store nothing: the gateway keeps the conversation, and sends all of it
with every request.
"""

from collections.abc import AsyncGenerator
from typing import Literal, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from adapters.openai.chat.messages import encode_messages, encode_tool
from adapters.openai.chat.stream import CompletionParser
from adapters.openai.encoding import tool_names
from adapters.openai.service import PROMPT, OpenAIService, OpenAISettings
from gateway.a2a.model import Json
from gateway.config.agents import HistoryConfig
from gateway.ports.adapter import AdapterEvent, AdapterFactory, CallStarted, ServiceRequest
from gateway.ports.capabilities import ProbeReport
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner


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
    def _owner_is_the_gateway(cls, history: HistoryConfig) -> HistoryConfig:
        if history.owner == "backend":
            raise ValueError("a Chat Completions server keeps no conversation: the owner can only be 'gateway'")
        return history

    @model_validator(mode="after")
    def _check_extra_body(self) -> Self:
        self.refuse_fields(("messages", "stream", "stream_options", "n"))
        tools = self.extra_body.get("tools", [])
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise ValueError("extra_body.tools must be a list of objects")
        names = tool_names(tool for tool in tools if isinstance(tool, dict))
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two of extra_body.tools are called {name!r}")
        return self


class ChatAdapter(OpenAIService):
    """Sends the requests of one agent to a Chat Completions server."""

    ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)

    def __init__(self, settings: ChatSettings) -> None:
        self._instructions: list[Json] = (
            [{"role": settings.instructions_role, "content": settings.instructions}] if settings.instructions else []
        )
        fields = settings.request_fields(
            *("max_tokens", "max_completion_tokens", "reasoning_effort"),
            stream_options={"include_usage": True} if settings.include_usage else None,
        )
        super().__init__(settings, "chat/completions", fields, encode_tool, (settings.key,))

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        messages = [*self._instructions, *encode_messages(request.items)]
        body = self._offer.fields(request.tools) | {"messages": messages}
        parser = CompletionParser(self._failures)
        async with self._http.stream(self._url, msgspec.json.encode(body)) as stream:
            yield CallStarted()
            async for batch in stream:
                for data in batch:
                    for event in parser.receive(data):
                        yield event
                if parser.ended:
                    break
            last = parser.finish()
            stream.answered = True
            for event in last:
                yield event

    async def probe(self) -> ProbeReport:
        listed = await self._lists_model()
        messages = [*self._instructions, {"role": "user", "content": PROMPT}]
        await self._start_answer({"messages": messages}, CompletionParser(self._failures).receive)
        return ProbeReport(model=listed, streams=True)


factory = AdapterFactory(
    settings=ChatSettings,
    build=ChatAdapter,
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*", "audio/*"),
    output_modes=("text/plain",),
)
