"""Chunks of a Chat Completions stream -> adapter events; no IO. Law: only a finish reason is an end; the id tells the call
of a fragment, the index only where there is no id; a name is set once. A call without an id gets one, and keeps it; a call
that is reported again is no other call.

llama.cpp repeats id and name with every fragment; Ollama gives every call the index 0; some parsers of vLLM give no id,
or give it late. Source: OpenAI API description 2.3.0, schema `CreateChatCompletionStreamResponse`; captures of servers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from secrets import token_hex

import msgspec

from adapters.http.failures import Failures
from adapters.http.sse import DONE
from adapters.openai.encoding import json_text
from gateway.a2a.model import Json
from gateway.ports import adapter as port
from gateway.ports.conversation import ReasoningItem

# The words of OpenAI, and of servers that pass on those of other wires (Text Generation Inference, Anthropic, Cohere).
_COMPLETE = frozenset(
    {"stop", "tool_calls", "function_call"}
    | {"eos_token", "stop_sequence", "end_turn", "tool_use", "complete", "tool_call"}
)
_FAILED = "error"

_json = msgspec.json.Decoder(msgspec.Raw)


class Function(msgspec.Struct):
    name: str | None = None
    arguments: Json = None

    @property
    def text(self) -> str:
        """The piece of the arguments; some servers give an object."""
        given = self.arguments
        return given if isinstance(given, str) else "" if given is None else json_text(given)


class Fragment(msgspec.Struct):
    """`extra_content` is wanted back with the call: Gemini keeps the model's thoughts in it."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: Json = None


@dataclass(slots=True)
class _Call:
    """`given` is the server's id, once it is known; `call_id` is the id of the events, from the announcement on. `again` is
    an earlier call of the same id: whether this is another call is known when it is complete, and told only then."""

    call_id: str
    given: str | None
    index: int | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    again: "_Call | None" = None
    extra: Json = None

    @property
    def text(self) -> str:
        return "".join(self.arguments)


class CompletionCalls:
    """The calls of one completion."""

    def __init__(self) -> None:
        self._in_order: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}

    def untold(self, whole: Sequence[Fragment]) -> Sequence[Fragment]:
        """The calls of a message that no fragment has told yet. Without an id, a call is one of those that were told."""
        begun = bool(self._in_order)
        return [call for call in whole if (call.id not in self._by_id if call.id else not begun)]

    def receive(self, fragment: Fragment) -> Iterator[port.AdapterEvent]:
        function = fragment.function or Function()
        call = self._call(fragment, function)
        if fragment.extra_content is not None:
            call.extra = fragment.extra_content
        arguments = function.text
        if function.name and call.name and call.arguments == [arguments] and _is_whole(arguments):
            # The fragment is a repetition, since nothing can follow whole arguments.
            return
        named = bool(function.name and not call.name)
        call.name = call.name or function.name or ""
        if named and call.again is None:
            yield from _announced(call)
        if arguments:
            call.arguments.append(arguments)
            if call.name and call.again is None:
                yield port.ToolCallArguments(call.call_id, arguments)

    def receive_legacy(self, function: Function) -> Iterator[port.AdapterEvent]:
        """The single `function_call` of the older wire. Servers that speak both wires send each call twice."""
        if not any(call.given or call.index is not None for call in self._in_order):
            yield from self.receive(Fragment(function=function))

    def finish(self) -> Iterator[port.AdapterEvent]:
        for call in self._in_order:
            if call.again is not None:
                if (call.name, call.text) == (call.again.name, call.again.text):
                    continue
                yield from _announced(call)
            yield port.ToolCallReady(call.call_id, call.name, call.text, opaque=call.extra)

    def _call(self, fragment: Fragment, function: Function) -> _Call:
        call = self._known(fragment, function)
        if call is None:
            # The server gave two calls the same id. The second call gets another id, so that each output belongs to
            # one call.
            again = self._by_id.get(fragment.id or "")
            given = fragment.id if again is not None else None
            call = _Call(f"call_{token_hex(12)}", given, fragment.index, again=again)
            self._in_order.append(call)
        if fragment.id and call.given is None:
            call.given = fragment.id
            if not call.name:
                call.call_id = fragment.id
            self._by_id[fragment.id] = call
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        return call

    def _known(self, fragment: Fragment, function: Function) -> _Call | None:
        given, index = fragment.id, fragment.index
        if given and given in self._by_id:
            named = self._by_id[given]
            moved = index is not None and named.index not in (None, index)
            return None if moved and _begins_another(named, function) else named
        latest = self._in_order[-1] if self._in_order else None
        call = latest if index is None else self._by_index.get(index)
        if call is None or (given and call.given) or _begins_another(call, function):
            return None
        return call


def _begins_another(call: _Call, function: Function) -> bool:
    """Whether the fragment begins another call. Without an id, a name after complete arguments begins the next call."""
    return bool(function.name and call.name) and _is_whole(call.text)


def _is_whole(arguments: str) -> bool:
    try:
        _json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _announced(call: _Call) -> Iterator[port.AdapterEvent]:
    """The beginning of a call, with all its arguments so far."""
    yield port.ToolCallAnnounced(call.call_id, call.name)
    if call.arguments:
        yield port.ToolCallArguments(call.call_id, call.text)


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
    message: Json = None
    usage: Json = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Json = None
    x_groq: Json = None
    error: Json = None
    object: str | None = None
    message: Json = None
    code: Json = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class CompletionParser:
    """One completion. `receive` takes the data of every event until the parser has `ended`; then `finish` is called.
    `usage` is the latest report of tokens, also of a completion that failed."""

    def __init__(self, failures: Failures) -> None:
        self.ended = False
        self.usage: Json = None
        self._failures = failures
        self._finish_reason: str | None = None
        self._reasoning: list[str] = []
        self._calls = CompletionCalls()
        self._message = ""

    def receive(self, data: bytes) -> Sequence[port.AdapterEvent]:
        """Raises: AdapterError when the completion failed, or `data` is no chunk."""
        self.ended = self.ended or data == DONE
        if self.ended:
            return ()
        try:
            chunk = _decode_chunk(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._failures.error(port.ErrorClass.CONTRACT_BROKEN, f"a chunk cannot be read: {error}") from error
        if chunk.error is not None:
            raise self._failures.from_event(chunk.error)
        if chunk.object == _FAILED:
            raise self._failures.from_event({"message": chunk.message, "code": chunk.code})
        if chunk.usage is not None:
            self.usage = chunk.usage
        elif chunk.x_groq is not None and isinstance(chunk.x_groq, dict):
            # Groq reports the tokens here, whatever it was asked for.
            self.usage = chunk.x_groq.get("usage", self.usage)
        for choice in chunk.choices or ():
            if choice.index == 0:
                return tuple(self._choice(choice))
        return ()

    def finish(self) -> Sequence[port.AdapterEvent]:
        """Raises: AdapterError when the stream ended before the completion did."""
        reason = self._finish_reason
        if reason is None:
            raise self._failures.error(port.ErrorClass.INTERRUPTED, "the stream ended without a finish_reason")
        finish = None if reason.lower() in _COMPLETE else self._failures.detail(reason)
        return (
            *self._reasoning_item(),
            *((port.MessageReady(self._message),) if self._message else ()),
            *self._calls.finish(),
            port.CallCompleted(usage=self.usage, finish=finish),
        )

    def _choice(self, choice: _Choice) -> Iterator[port.AdapterEvent]:
        delta = choice.delta
        if delta is not None:
            # Some servers send the same text under both names.
            if reasoning := delta.reasoning_content or delta.reasoning:
                self._reasoning.append(reasoning)
                yield port.ReasoningDelta(reasoning)
            if text := delta.content or delta.refusal:
                yield from self._reasoning_item()
                yield port.TextDelta(text)
            if delta.tool_calls:
                yield from self._reasoning_item()
                for fragment in delta.tool_calls:
                    yield from self._calls.receive(fragment)
            elif delta.function_call:
                yield from self._reasoning_item()
                yield from self._calls.receive_legacy(delta.function_call)
        elif choice.message is not None:
            yield from self._whole(choice.message)
        if choice.finish_reason:
            if choice.finish_reason == _FAILED:
                raise self._failures.error(port.ErrorClass.BACKEND_FAILED, "the backend finished with an error")
            self._finish_reason = choice.finish_reason
            if choice.usage is not None:
                # Moonshot reports the tokens here.
                self.usage = choice.usage

    def _whole(self, given: Json) -> Iterator[port.AdapterEvent]:
        """A message in the place of a delta: all of the answer, its beginning up to here, or its next piece. What deltas have
        told of it is not told again. Raises: AdapterError for a message that cannot be read."""
        try:
            message = msgspec.convert(given, _Delta)
        except msgspec.ValidationError as error:
            raise self._failures.error(port.ErrorClass.CONTRACT_BROKEN, f"a message cannot be read: {error}") from error
        text = message.content or message.refusal or ""
        self._message = text if text.startswith(self._message) else self._message + text
        for fragment in self._calls.untold(message.tool_calls or ()):
            yield from self._calls.receive(fragment)
        if message.function_call and not message.tool_calls:
            yield from self._calls.receive_legacy(message.function_call)

    def _reasoning_item(self) -> Iterator[port.AdapterEvent]:
        if self._reasoning:
            text = "".join(self._reasoning)
            self._reasoning.clear()
            yield port.ItemReady(ReasoningItem(text))
