"""The adapter of type `openai-chat`: OpenAI's Chat Completions and every compatible server (Ollama, vLLM, llama.cpp, LM
Studio and others). They keep nothing: the gateway keeps the conversation and sends it whole every time.
"""

from collections.abc import AsyncGenerator

import msgspec

from adapters.openai.chat.messages import encode_messages, encode_tool
from adapters.openai.chat.settings import ChatSettings
from adapters.openai.chat.stream import CompletionParser
from adapters.openai.service import PROMPT, OpenAIService
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterEvent, AdapterFactory, CallStarted, ServiceRequest
from gateway.ports.capabilities import ProbeReport
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner


class ChatAdapter(OpenAIService):
    """Speaks to one Chat Completions server."""

    ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)

    def __init__(self, settings: ChatSettings) -> None:
        self._instructions: list[Json] = (
            [{"role": settings.instructions_role, "content": settings.instructions}] if settings.instructions else []
        )
        fields = settings.request_fields(
            stream_options={"include_usage": True} if settings.include_usage else None,
            max_tokens=settings.max_tokens,
            max_completion_tokens=settings.max_completion_tokens,
            reasoning_effort=settings.reasoning_effort,
        )
        super().__init__(settings, "chat/completions", fields, encode_tool, (settings.key,))

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
