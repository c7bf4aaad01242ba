"""The adapter of type `openai-chat`: OpenAI's Chat Completions and every compatible server (Ollama, vLLM, llama.cpp, LM
Studio and others). They keep nothing: the gateway keeps the conversation and sends it whole every time.
"""

from collections.abc import AsyncGenerator

import msgspec

from adapters.http.client import HttpClient
from adapters.openai.chat.messages import encode_messages, encode_tool
from adapters.openai.chat.settings import ChatSettings
from adapters.openai.chat.stream import CompletionParser
from adapters.openai.failures import OpenAIFailures
from adapters.openai.probe import PROMPT, lists_model, start_answer
from adapters.openai.tools import ToolOffer
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterEvent, AdapterFactory, CallStarted, ServiceRequest
from gateway.ports.capabilities import ProbeReport
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner


class ChatAdapter:
    """Speaks to one Chat Completions server."""

    ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)

    def __init__(self, settings: ChatSettings) -> None:
        self.backend = settings.backend
        self._base_url = settings.base_url
        self._url = f"{settings.base_url}/chat/completions"
        self._model = settings.model
        self._instructions: list[Json] = (
            [{"role": settings.instructions_role, "content": settings.instructions}] if settings.instructions else []
        )
        self._failures = OpenAIFailures((settings.key,))
        fields = settings.request_fields(
            stream_options={"include_usage": True} if settings.include_usage else None,
            max_tokens=settings.max_tokens,
            max_completion_tokens=settings.max_completion_tokens,
            reasoning_effort=settings.reasoning_effort,
        )
        self._offer = ToolOffer(fields, encode_tool, self._failures)
        self._http = HttpClient(settings.timeouts, self._failures, settings.headers)

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        messages = [*self._instructions, *encode_messages(request.items)]
        body = self._offer.fields(request.tools) | {"messages": messages}
        parser = CompletionParser(self._failures)
        async with self._http.post_stream(self._url, msgspec.json.encode(body)) as stream:
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
        listed = await lists_model(self._http, self._base_url, self._model)
        body = self._offer.fields() | {"messages": [*self._instructions, {"role": "user", "content": PROMPT}]}
        await start_answer(self._http, self._url, body, CompletionParser(self._failures).receive, self._failures)
        return ProbeReport(model=listed, streams=True)

    async def aclose(self) -> None:
        await self._http.aclose()


factory = AdapterFactory(
    settings=ChatSettings,
    build=ChatAdapter,
    input_modes=("text/plain", "text/*", "application/json", "application/*", "image/*", "audio/*"),
    output_modes=("text/plain",),
)
