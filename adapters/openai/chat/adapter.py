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
from adapters.openai.failures import OpenAIFailures
from adapters.openai.service import PROMPT, OpenAIService, OpenAISettings
from gateway.a2a.model import Json
from gateway.config.agents import HistoryConfig
from gateway.config.settings import Count
from gateway.ports.adapter import AdapterError, AdapterEvent, AdapterFactory, CallStarted, ServiceRequest, StateKind
from gateway.ports.capabilities import Model, ProbeReport
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

# The server does not run these tools; their calls come back in the answer.
_CLIENT_TOOLS = ("function", "custom")


class ChatSettings(OpenAISettings):
    """An agent of type `openai-chat`."""

    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation: always the gateway.")
    instructions_role: Literal["system", "developer"] = Field("system", description="Role of the instructions.")
    max_tokens: Count | None = Field(None, description="Limit of an answer; OpenAI's newer models want the next one.")
    max_completion_tokens: Count | None = Field(None, description="Limit of an answer, reasoning included.")
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

    @property
    def repeatable(self) -> bool:
        """Whether a request of unknown outcome may be sent again: a tool that the server ran for it would run twice."""
        tools = self.extra_body.get("tools")
        given = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        return all(tool.get("type", "function") in _CLIENT_TOOLS for tool in given)


class ChatAdapter(OpenAIService):
    """Sends the requests of one agent to a Chat Completions server."""

    def __init__(self, settings: ChatSettings) -> None:
        self.ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=settings.repeatable)
        self._instructions: list[Json] = (
            [{"role": settings.instructions_role, "content": settings.instructions}] if settings.instructions else []
        )
        fields = settings.request_fields(
            *("max_tokens", "max_completion_tokens", "reasoning_effort"),
            stream_options={"include_usage": True} if settings.include_usage else None,
        )
        failures = OpenAIFailures(settings.secrets())
        super().__init__(settings.address, "chat/completions", fields, encode_tool, failures)
        self.model = Model("openai", settings.model)
        self._model = settings.model

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        messages = [*self._instructions, *encode_messages(request.items)]
        body = self._offer.fields(request.tools) | {"messages": messages}
        parser = CompletionParser(self._failures)
        try:
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
        except AdapterError as error:
            error.usage = parser.usage
            raise

    async def probe(self) -> ProbeReport:
        listed = await self._lists(self._model)
        messages = [*self._instructions, {"role": "user", "content": PROMPT}]
        await self._start_answer({"messages": messages}, CompletionParser(self._failures).receive)
        return ProbeReport(model=listed, streams=True)


factory = AdapterFactory(
    settings=ChatSettings,
    build=ChatAdapter,
    summary="Chat Completions: OpenAI, Ollama, vLLM, llama.cpp, LM Studio and other servers",
    states=(StateKind(StorageOwner.GATEWAY, HandleKind.NONE, ChatAdapter),),
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*", "audio/*"),
    output_modes=("text/plain",),
)
