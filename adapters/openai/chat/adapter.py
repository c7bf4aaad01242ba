"""Items of a thread -> `messages` of the Chat Completions wire. Law: an assistant message with calls is followed at
once by one tool message for each of them.

Source: OpenAI API description 2.3.0, schema `ChatCompletionRequestMessage`.

Chat Completions, OpenAI's own and every server that speaks it (Ollama, vLLM, llama.cpp, LM Studio and others). They
keep nothing: the gateway keeps the conversation and sends it whole every time.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterable
from itertools import groupby
from typing import Literal, Self

import msgspec
from pydantic import Field, field_validator, model_validator

from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from adapters.http.settings import OpenAISettings, refuse_fields
from adapters.openai.chat.stream import Reading
from adapters.openai.shared import (
    QUESTION,
    CallIds,
    Offer,
    arguments_text,
    begin,
    file_name,
    file_url,
    function_name,
    lists_model,
    media_type,
    output_text,
    part_text,
    said,
    tool_names,
)
from gateway.a2a.model import Json, Part
from gateway.config.agents import HistoryConfig
from gateway.ports.adapter import AdapterEvent, AdapterFactory, CallStarted, ServiceRequest
from gateway.ports.capabilities import ProbeReport
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    Item,
    OutputItem,
    Ownership,
    StorageOwner,
    UserItem,
)
from gateway.ports.tools import ToolDeclaration

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def encode_tool(tool: ToolDeclaration) -> dict[str, Json]:
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": described}


def encode_messages(items: Iterable[Item]) -> list[Json]:
    """Reasoning, opaque items and questions of a backend's have no place on this wire."""
    items = tuple(item for item in items if not _is_question(item))
    outputs: dict[str, deque[OutputItem]] = {}
    for item in items:
        if isinstance(item, OutputItem):
            outputs.setdefault(item.call_id, deque()).append(item)
    ids = CallIds()
    messages: list[Json] = []
    for is_call, group in groupby(items, lambda item: isinstance(item, CallItem)):
        if is_call:
            _call(messages, [item for item in group if isinstance(item, CallItem)], outputs, ids)
        else:
            for item in group:
                _say(messages, item)
    return messages


def _is_question(item: Item) -> bool:
    match item:
        case CallItem(asking=asking):
            return asking is not None
        case OutputItem(approved=approved):
            return approved is not None
    return False


def _say(messages: list[Json], item: Item) -> None:
    match item:
        case UserItem(message=message):
            messages.append({"role": "user", "content": _content(message.parts)})
        case AssistantItem(parts=parts):
            text = said(parts)
            last = messages[-1] if messages else {}
            if last.get("role") == "assistant":
                last["content"] += text
            elif text:
                messages.append({"role": "assistant", "content": text})


def _call(messages: list[Json], calls: list[CallItem], outputs: dict[str, deque[OutputItem]], ids: CallIds) -> None:
    """One message with all calls, and the output of each; ids may repeat in a thread, so the first one left is meant."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1]["tool_calls"] = [
        {
            "id": ids.of_call(call.call_id),
            "type": "function",
            "function": {"name": function_name(call.name), "arguments": arguments_text(call.arguments)},
        }
        for call in calls
    ]
    for call in calls:
        output = outputs[call.call_id].popleft()
        answered = ids.of_output(call.call_id)
        messages.append({"role": "tool", "tool_call_id": answered, "content": output_text(output)})


def _content(parts: tuple[Part, ...]) -> Json:
    texts = [part_text(part) for part in parts]
    if None not in texts:
        # Many compatible servers take lists of parts only from models that see pictures.
        return "\n".join(text for text in texts if text is not None)
    return [_part(part) for part in parts]


def _part(part: Part) -> Json:
    text = part_text(part)
    if text is not None:
        return {"type": "text", "text": text}
    kind = media_type(part)
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": file_url(part)}}
    if part.raw is None:
        return {"type": "text", "text": f"{file_name(part)}: {part.url}"}
    if kind in _AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": part.raw, "format": _AUDIO_FORMATS[kind]}}
    return {"type": "file", "file": {"filename": file_name(part), "file_data": file_url(part)}}


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
        self.backend = settings.backend
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
