"""An emulator of Chat Completions, in the dialects of OpenAI and of compatible servers, with scripted answers.

It keeps nothing: a script sees the messages of the request.

Source: OpenAI API description 2.3.0, schema `CreateChatCompletionStreamResponse`; the dialects from captures.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from types import MappingProxyType
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.emulators.scripts import (
    Call,
    Conversation,
    ErrorEvent,
    Fail,
    Incomplete,
    Json,
    Refuse,
    Say,
    Script,
    Step,
    Think,
    greeting,
    pieces,
)
from tests.emulators.server import Emulator, Validator, refused


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """Differences of a compatible server from OpenAI's own wire."""

    calls: Literal["fragments", "whole", "repeated_heads"] = "fragments"
    """A streamed tool call comes as a head and fragments, as one chunk, or with the head on every fragment."""
    index_always_zero: bool = False
    finish_of_calls: Literal["tool_calls", "stop"] = "tool_calls"
    null_roles: bool = False
    """Every delta carries `role: null` and `content`, tool calls also the old `function_call`."""
    done_line: bool = True
    usage_in_finish_chunk: bool = False
    reasoning_field: str | None = None


CHAT_DIALECTS: Mapping[str, ChatDialect] = MappingProxyType(
    {
        "openai": ChatDialect(),
        "ollama": ChatDialect(
            calls="whole", index_always_zero=True, finish_of_calls="stop", reasoning_field="reasoning"
        ),
        "llama-cpp": ChatDialect(calls="repeated_heads", null_roles=True),
        "transformers": ChatDialect(done_line=False, usage_in_finish_chunk=True),
        "vllm": ChatDialect(reasoning_field="reasoning_content"),
    }
)


class ChatReply:
    """One completion in the making."""

    def __init__(self, request: Json, dialect: ChatDialect) -> None:
        self._dialect = dialect
        self._head = {"id": f"chatcmpl-{token_hex(14)}", "created": int(time.time()), "model": request["model"]}
        self._wants_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        self._input_tokens = sum(len(json.dumps(message).split()) for message in request["messages"])
        self._message: Json = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        self._calls: list[Json] = []
        self._limit: str | None = None
        self._failed: Json | None = None

    @property
    def ended(self) -> bool:
        return self._failed is not None

    def begin(self) -> Iterator[bytes]:
        yield self._delta({"role": "assistant", "content": "", "refusal": None})

    def take(self, step: Step) -> Iterator[bytes]:
        match step:
            case Say(text, chunks):
                yield from self._grow("content", text, chunks)
            case Refuse(text, chunks):
                yield from self._grow("refusal", text, chunks)
            case Think(text, _, chunks):
                # OpenAI itself hides the model's reasoning on this wire.
                if self._dialect.reasoning_field:
                    yield from self._grow(self._dialect.reasoning_field, text, chunks)
            case Call():
                yield from self._call(step)
            case Incomplete(reason):
                self._limit = "length" if reason == "max_output_tokens" else reason
            case Fail(code, message):
                yield self._fail(message, None, code)
            case ErrorEvent(code, message, param):
                yield self._fail(message, param, code)
            case _:
                raise ValueError(f"Chat Completions has nothing for {type(step).__name__}")

    def finish(self) -> Iterator[bytes]:
        usage = {"usage": self._usage()}
        in_finish_chunk = self._dialect.usage_in_finish_chunk
        yield self._chunk([self._choice({}, self._finish_reason)], usage if in_finish_chunk else {})
        if self._wants_usage and not in_finish_chunk:
            yield self._chunk([], usage)
        if self._dialect.done_line:
            yield b"data: [DONE]\n\n"

    def drained(self) -> tuple[int, Json]:
        if self._failed is not None:
            return 500, {"error": self._failed}
        message = self._message | ({"tool_calls": self._calls} if self._calls else {})
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason}
        return 200, {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage()}

    @property
    def _finish_reason(self) -> str:
        return self._limit or (self._dialect.finish_of_calls if self._calls else "stop")

    def _grow(self, field: str, text: str, chunks: int) -> Iterator[bytes]:
        for piece in pieces(text, chunks):
            self._message[field] = (self._message.get(field) or "") + piece
            yield self._delta({field: piece})

    def _call(self, step: Call) -> Iterator[bytes]:
        index = 0 if self._dialect.index_always_zero else len(self._calls)
        arguments = step.arguments if isinstance(step.arguments, str) else json.dumps(dict(step.arguments))
        name = {"id": step.call_id or f"call_{token_hex(12)}", "type": "function"}
        self._calls.append({**name, "function": {"name": step.name, "arguments": arguments}})
        head = {"index": index, **name}
        match self._dialect.calls:
            case "whole":
                yield self._call_delta(head, {"name": step.name, "arguments": arguments})
            case "repeated_heads":
                for piece in pieces(arguments, step.chunks):
                    yield self._call_delta(head, {"name": step.name, "arguments": piece})
            case "fragments":
                yield self._call_delta(head, {"name": step.name, "arguments": ""})
                for piece in pieces(arguments, step.chunks):
                    yield self._call_delta({"index": index}, {"arguments": piece})

    def _call_delta(self, head: Mapping[str, Any], function: Mapping[str, str]) -> bytes:
        legacy = {"content": None, "function_call": function} if self._dialect.null_roles else {}
        return self._delta({**legacy, "tool_calls": [{**head, "function": function}]})

    def _delta(self, delta: Json) -> bytes:
        if self._dialect.null_roles and "role" not in delta:
            delta = {"role": None, **delta}
        return self._chunk([self._choice(delta, None)], {})

    def _choice(self, delta: Json, finish_reason: str | None) -> Json:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}

    def _chunk(self, choices: Iterable[Json], more: Mapping[str, Any]) -> bytes:
        # With usage requested, OpenAI puts a null into every other chunk.
        usage = {"usage": None} if self._wants_usage else {}
        return _line({**self._head, "object": "chat.completion.chunk", "choices": list(choices), **usage, **more})

    def _fail(self, message: str, param: str | None, code: str | None) -> bytes:
        self._failed = {"message": message, "type": "server_error", "param": param, "code": code}
        return _line({"error": self._failed})

    def _usage(self) -> Json:
        output_tokens = len(json.dumps([self._message, self._calls]).split())
        return {
            "prompt_tokens": self._input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": self._input_tokens + output_tokens,
        }


def _line(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


class ChatServer(Emulator):
    """`POST /v1/chat/completions` in one of the dialects."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        dialect: ChatDialect = CHAT_DIALECTS["openai"],
        api_key: str | None = None,
        models: tuple[str, ...] = (),
        validator: Validator | None = None,
    ) -> None:
        """Without a script it plays `greeting`."""
        super().__init__(script or greeting, api_key=api_key, models=models, validator=validator)
        self._dialect = dialect

    def routes(self) -> Iterable[Route]:
        return (self.route("POST", "/v1/chat/completions", self._create),)

    async def _create(self, request: Request) -> Response:
        body = await self.read(request, "CreateChatCompletionRequest")
        _check_shape(body)
        if not self.knows_model(body["model"]):
            message = f"The model `{body['model']}` does not exist or you do not have access to it."
            raise refused(404, message, code="model_not_found")
        _check_calls(body["messages"])
        steps = await self.open(Conversation(tuple(body["messages"]), body))
        if isinstance(steps, Response):
            return steps
        return await self.answer(ChatReply(body, self._dialect), steps, stream=bool(body.get("stream")))


def _check_shape(body: Mapping[str, Any]) -> None:
    if body.get("model") is None:
        raise refused(400, "you must provide a model parameter")
    messages = body.get("messages")
    if messages is None:
        raise refused(
            400, "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
        )
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        message = f"Invalid type for 'messages': expected an array of objects, but got {messages!r} instead."
        raise refused(400, message, param="messages", code="invalid_type")
    if not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array."
        raise refused(400, message, param="messages", code="empty_array")
    if body.get("tools") == []:
        message = (
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
        raise refused(400, message, param="tools", code="empty_array")
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not body.get("tools"):
            message = f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
            raise refused(400, message, param=name)
    if body.get("stream_options") and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise refused(400, message, param="stream_options")


def _check_calls(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raises: Refused unless the tool messages of all calls follow the calls at once."""
    made: list[str] = []
    pending: list[str] = []
    answering = False
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            if not answering:
                text = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                raise refused(400, f"{text}'tool_calls'.", param=f"messages.[{index}].role")
            answered = message.get("tool_call_id")
            if answered not in made:
                text = (
                    f"Invalid parameter: 'tool_call_id' of '{answered}' not found in 'tool_calls' of previous message."
                )
                raise refused(400, text, param=f"messages.[{index}].tool_call_id")
            pending = [call_id for call_id in pending if call_id != answered]
            continue
        _refuse_unanswered(pending, index)
        made = pending = [str(call.get("id")) for call in message.get("tool_calls") or ()]
        answering = bool(pending)
    _refuse_unanswered(pending, len(messages))


def _refuse_unanswered(pending: Sequence[str], index: int) -> None:
    if pending:
        text = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(pending)}"
        )
        raise refused(400, text, param=f"messages.[{index}].role")
