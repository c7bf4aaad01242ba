"""Tool calls out of the fragments of a Chat Completions stream. Law: the id tells the call of a fragment, the index only
where there is no id; a name is set once. A call without an id gets one, and keeps it.

llama.cpp repeats id and name with every fragment; Ollama gives every call the index 0; some parsers of vLLM give no id,
or give it late.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from secrets import token_hex

import msgspec

from adapters.openai.content import json_text
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterEvent, ToolCallAnnounced, ToolCallArguments, ToolCallReady


class Function(msgspec.Struct):
    name: str | None = None
    arguments: Json = None

    @property
    def text(self) -> str:
        """The piece of the arguments; some servers give an object."""
        given = self.arguments
        return given if isinstance(given, str) else "" if given is None else json_text(given)


class Fragment(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


@dataclass(slots=True)
class _Call:
    """`given` is the server's id, once it is known; `call_id` is the id of the events, from the announcement on."""

    call_id: str
    given: str | None
    index: int | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)


_json = msgspec.json.Decoder(msgspec.Raw)


class CompletionCalls:
    """The calls of one completion."""

    def __init__(self) -> None:
        self._in_order: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}

    def receive(self, fragment: Fragment) -> Iterator[AdapterEvent]:
        function = fragment.function or Function()
        call = self._call(fragment, function)
        arguments = function.text
        if function.name and not call.name:
            call.name = function.name
            yield ToolCallAnnounced(call.call_id, call.name)
            if call.arguments:
                yield ToolCallArguments(call.call_id, "".join(call.arguments))
        if arguments:
            call.arguments.append(arguments)
            if call.name:
                yield ToolCallArguments(call.call_id, arguments)

    def receive_legacy(self, function: Function) -> Iterator[AdapterEvent]:
        """The single `function_call` of the older wire. Servers that speak both wires send each call twice."""
        if not any(call.given or call.index is not None for call in self._in_order):
            yield from self.receive(Fragment(function=function))

    def finish(self, *, cut: bool) -> Iterator[AdapterEvent]:
        """`cut`: the answer is incomplete. A last call whose arguments had not begun was never made: it must not run."""
        last = self._in_order[-1] if self._in_order else None
        for call in self._in_order:
            if cut and call is last and not "".join(call.arguments).strip():
                return
            yield ToolCallReady(call.call_id, call.name, "".join(call.arguments))

    def _call(self, fragment: Fragment, function: Function) -> _Call:
        call = self._known(fragment, function) or self._new(fragment)
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

    def _new(self, fragment: Fragment) -> _Call:
        # One id for two calls: nothing would tell whose output is whose, so the second call gets an id of its own.
        given = fragment.id if fragment.id in self._by_id else None
        call = _Call(f"call_{token_hex(12)}", given, fragment.index)
        self._in_order.append(call)
        return call


def _begins_another(call: _Call, function: Function) -> bool:
    """Without an id, a name after complete arguments begins the next call."""
    if not (function.name and call.name):
        return False
    try:
        _json.decode("".join(call.arguments))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
