"""Tool calls out of the fragments in which Chat Completions streams them. Law: the id says whose a fragment is, the
index only where there is no id, and a name is set once.

llama.cpp repeats id and name with every fragment; Ollama gives every call the index 0; some parsers of vLLM give no id.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from gateway.ports import AdapterEvent, ToolCallAnnounced, ToolCallArguments, ToolCallReady


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class Fragment(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)


_json = msgspec.json.Decoder(msgspec.Raw)


class Calls:
    """The calls of one completion."""

    def __init__(self) -> None:
        self._in_order: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}

    def receive(self, fragment: Fragment) -> Iterator[AdapterEvent]:
        function = fragment.function or Function()
        call = self._call(fragment, function)
        if function.name and not call.name:
            call.name = function.name
            yield ToolCallAnnounced(call.call_id, call.name)
            if call.arguments:
                yield ToolCallArguments(call.call_id, "".join(call.arguments))
        if function.arguments:
            call.arguments.append(function.arguments)
            if call.name:
                yield ToolCallArguments(call.call_id, function.arguments)

    def finish(self) -> Iterator[AdapterEvent]:
        for call in self._in_order:
            yield ToolCallReady(call.call_id, call.name, "".join(call.arguments))

    def _call(self, fragment: Fragment, function: Function) -> _Call:
        index = fragment.index
        if fragment.id:
            call = self._by_id.get(fragment.id)
        elif index is None:
            call = self._in_order[-1] if self._in_order else None
        else:
            call = self._by_index.get(index)
        if call is None or (not fragment.id and _begins_another(call, function)):
            call = self._new(fragment.id)
        if index is not None:
            self._by_index[index] = call
        return call

    def _new(self, given: str | None) -> _Call:
        call = _Call(given or f"call_{len(self._in_order)}")
        self._in_order.append(call)
        if given:
            self._by_id[given] = call
        return call


def _begins_another(call: _Call, function: Function) -> bool:
    """Without ids, a name behind whole arguments is the next call."""
    if not (function.name and call.name):
        return False
    try:
        _json.decode("".join(call.arguments))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
