"""Chunks of a Chat Completions stream -> adapter events; no IO. Law: only a finish reason is an end.

Source: OpenAI API description 2.3.0, schema `CreateChatCompletionStreamResponse`; captures of compatible servers.
"""

from collections.abc import Iterator, Sequence

import msgspec

from adapters.http.failures import Failures
from adapters.http.sse import DONE
from adapters.openai.chat.calls import CompletionCalls, Fragment, Function
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterEvent, CallCompleted, ErrorClass, ItemReady, ReasoningDelta, TextDelta
from gateway.ports.conversation import ReasoningItem

_COMPLETE = frozenset({"stop", "tool_calls", "function_call"})
_FAILED = "error"


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Fragment] | None = None
    function_call: Function | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Json = None
    error: Json = None
    object: str | None = None
    message: Json = None
    code: Json = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class CompletionParser:
    """One completion. `receive` takes the data of every event until the parser has `ended`; then `finish` is called."""

    def __init__(self, failures: Failures) -> None:
        self.ended = False
        self._failures = failures
        self._finish_reason: str | None = None
        self._usage: Json = None
        self._reasoning: list[str] = []
        self._calls = CompletionCalls()

    def receive(self, data: bytes) -> Sequence[AdapterEvent]:
        """Raises: AdapterError when the completion failed, or `data` is no chunk."""
        self.ended = self.ended or data == DONE
        if self.ended:
            return ()
        try:
            chunk = _decode_chunk(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"a chunk cannot be read: {error}") from error
        if chunk.error is not None:
            raise self._failures.from_event(chunk.error)
        if chunk.object == _FAILED:
            raise self._failures.from_event({"message": chunk.message, "code": chunk.code})
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices or ():
            if choice.index == 0:
                return tuple(self._choice(choice))
        return ()

    def finish(self) -> Sequence[AdapterEvent]:
        """Raises: AdapterError when the stream ended before the completion did."""
        reason = self._finish_reason
        if reason is None:
            raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended without a finish_reason")
        finish = None if reason in _COMPLETE else reason
        return (
            *self._reasoning_item(),
            *self._calls.finish(cut=finish is not None),
            CallCompleted(usage=self._usage, finish=finish),
        )

    def _choice(self, choice: _Choice) -> Iterator[AdapterEvent]:
        delta = choice.delta
        if delta is not None:
            # Some servers send the same text under both names.
            if reasoning := delta.reasoning_content or delta.reasoning:
                self._reasoning.append(reasoning)
                yield ReasoningDelta(reasoning)
            if text := delta.content or delta.refusal:
                yield from self._reasoning_item()
                yield TextDelta(text)
            if delta.tool_calls:
                yield from self._reasoning_item()
                for fragment in delta.tool_calls:
                    yield from self._calls.receive(fragment)
            elif delta.function_call:
                yield from self._reasoning_item()
                yield from self._calls.receive_legacy(delta.function_call)
        if choice.finish_reason:
            if choice.finish_reason == _FAILED:
                raise self._failures.error(ErrorClass.BACKEND_FAILED, "the backend finished with an error")
            self._finish_reason = choice.finish_reason

    def _reasoning_item(self) -> Iterator[AdapterEvent]:
        if self._reasoning:
            text = "".join(self._reasoning)
            self._reasoning.clear()
            yield ItemReady(ReasoningItem(text))
