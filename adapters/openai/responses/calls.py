"""The tool calls of one response -> adapter events. Law: the item decides the kind of a call; events about a call may come
before its item, and its output before its end.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from adapters.openai.responses import wire
from gateway.a2a.model import Part
from gateway.ports import adapter as port

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Call:
    """A tool call in progress; `item` is its first copy."""

    call_id: str
    item: wire.ResponseItem
    ready: bool = False


class ResponseCalls:
    def __init__(self) -> None:
        self.open: dict[str, _Call] = {}
        """Calls in progress, by the key of their item."""
        self.ids: set[str] = set()
        """Every `call_id` of the response."""
        self._early: dict[str, list[tuple[Callable[..., Sequence[port.AdapterEvent]], str | None]]] = {}
        """Arguments that came before their item: OGX does not know the kind of a call at its beginning."""
        self._unanswered: dict[str, list[str]] = {}
        self._unmatched: list[wire.ResponseItem] = []

    def add(self, item: wire.ResponseItem) -> Sequence[port.AdapterEvent]:
        if item.key in self.open or (item.type == "mcp_call" and not item.name):
            return ()
        call = self.open[item.key] = _Call(self._new_id(item), item)
        early = [event for add, given in self._early.pop(item.key, ()) for event in add(self, item.key, given)]
        return (port.ToolCallAnnounced(call.call_id, item.tool), *early)

    def add_arguments(self, key: str, delta: str) -> Sequence[port.AdapterEvent]:
        call = self.open.get(key)
        if call is None:
            self._early.setdefault(key, []).append((ResponseCalls.add_arguments, delta))
            return ()
        return (port.ToolCallArguments(call.call_id, delta),)

    def end_arguments(self, key: str, arguments: str | None) -> Sequence[port.AdapterEvent]:
        """Ends the arguments of a call. From this event on, the backend runs the tool."""
        call = self.open.get(key)
        if call is None:
            self._early.setdefault(key, []).append((ResponseCalls.end_arguments, arguments))
            return ()
        if arguments is None or call.ready or call.item.type not in wire.SERVER_TOOLS:
            return ()
        call.ready = True
        return (wire.server_call(call.call_id, call.item, arguments),)

    def end_client_call(self, item: wire.ResponseItem) -> Iterator[port.AdapterEvent]:
        call = self._pop(item)
        arguments = item.arguments if item.arguments is not None else item.input or ""
        if item.status == "incomplete" and not arguments.strip():
            # The stream was cut before the arguments began. With blank arguments the tool would run without arguments.
            arguments = "{"
        yield port.ToolCallReady(call.call_id, item.tool, arguments, provider_id=item.id)
        self._unanswered.setdefault(item.call_id or "", []).append(call.call_id)
        early = next((output for output in self._unmatched if output.call_id == item.call_id), None)
        if early is not None:
            self._unmatched.remove(early)
            yield from self.add_output(early)

    def add_output(self, item: wire.ResponseItem) -> Iterator[port.AdapterEvent]:
        """The backend answers a call that looked like the client's, perhaps before the end of the call."""
        waiting = self._unanswered.get(item.call_id or "")
        if waiting:
            yield port.ToolResultReady(waiting.pop(0), "" if item.output is None else item.output)
        else:
            self._unmatched.append(item)

    def end_server_call(self, item: wire.ResponseItem) -> Iterator[port.AdapterEvent]:
        call = self._pop(item)
        arguments, output, error = wire.outcome(item)
        if not call.ready:
            yield wire.server_call(call.call_id, item, arguments)
        yield port.ToolResultReady(call.call_id, output, error)
        if item.type == "image_generation_call" and item.result:
            yield port.PartReady(Part(raw=item.result, media_type=f"image/{item.output_format or 'png'}"))

    def unmatched_outputs(self) -> Iterator[port.AdapterEvent]:
        for item in self._unmatched:
            _log.warning("a tool output belongs to no call of its response")
            yield port.ToolResultReady(self._new_id(item), "" if item.output is None else item.output)

    def _pop(self, item: wire.ResponseItem) -> _Call:
        return self.open.pop(item.key, None) or _Call(self._new_id(item), item)

    def _new_id(self, item: wire.ResponseItem) -> str:
        """The backend's id of the call, unless it gave none or the response has that id already."""
        call_id = item.call_id or item.id or "call"
        if call_id in self.ids or call_id == "call":
            call_id = f"{call_id}_{len(self.ids)}"
        self.ids.add(call_id)
        return call_id
