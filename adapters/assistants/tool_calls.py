"""The tool calls of a run. Law: `required_action` alone says which calls wait for the client; the service runs all others, and
each of these is told once.
"""

from collections.abc import Iterator, Sequence

import msgspec

from adapters.assistants import wire
from gateway.a2a.model import Json
from gateway.ports import adapter as port

_OWN_NAMES = frozenset({"code_interpreter", "file_search"})
"""Tools of the service whose type is their name, so that a call can be announced with its first delta."""
_FAILED = frozenset({"failed", "cancelled", "expired"})


class RunCalls:
    """`asked_in` is the step whose calls of MCP servers the caller has decided on: one with an output was approved."""

    def __init__(self, asked_in: str) -> None:
        self._asked_in = asked_in
        self._ids: dict[tuple[str, int], str] = {}
        self._announced: set[str] = set()
        self._told: set[str] = set()

    def delta(self, step: str, call: dict[str, Json]) -> Iterator[port.AdapterEvent]:
        """A piece of a call. Its id and its name come with the first piece only."""
        index, kind = call.get("index"), call.get("type")
        place = (step, index if isinstance(index, int) else 0)
        given = call.get("function")
        function: dict[str, Json] = given if isinstance(given, dict) else {}
        name = call.get("id")
        if isinstance(name, str) and name and place not in self._ids:
            self._ids[place] = name
            if kind == "function":
                yield port.ToolCallAnnounced(name, str(function.get("name") or ""))
            elif kind in _OWN_NAMES:
                self._announced.add(name)
                yield port.ToolCallAnnounced(name, str(kind), handled=True, server=str(kind))
        arguments = function.get("arguments")
        if kind == "function" and place in self._ids and isinstance(arguments, str) and arguments:
            yield port.ToolCallArguments(self._ids[place], arguments)

    def done(self, step: wire.Step) -> Iterator[port.AdapterEvent]:
        """The calls of a step that has ended."""
        for call in step.calls:
            name, kind = call.get("id"), call.get("type")
            if isinstance(name, str) and isinstance(kind, str) and kind != "function" and name not in self._told:
                self._told.add(name)
                yield from self._handled(name, kind, call, step)

    def waiting(self, calls: Sequence[wire.RequiredCall]) -> Iterator[port.AdapterEvent]:
        """The calls that the run waits for. Raises: ValueError for one that no caller can answer."""
        for call in calls:
            match call:
                case wire.RequiredCall(id=name, type="function", function=function) if name and function is not None:
                    yield port.ToolCallReady(name, function.name, function.arguments or "")
                case wire.RequiredCall(id=name, type="mcp", server_label=server) if name:
                    yield port.ApprovalAsked(name, call.name, call.arguments or "", server or "", name)
                case _:
                    raise ValueError(f"the run waits for a call of the type {call.type!r}")

    def _handled(self, name: str, kind: str, call: dict[str, Json], step: wire.Step) -> Iterator[port.AdapterEvent]:
        details = next((call[key] for key in (kind, "function") if isinstance(call.get(key), dict)), call)
        server = kind
        question = None
        if kind == "mcp":
            server = f"mcp:{call['server_label']}" if call.get("server_label") else "mcp"
            if step.id == self._asked_in:
                if call.get("output") is None:
                    # The caller has refused it.
                    return
                # The question and the call that it allows have one id at the service.
                name, question = f"{name}/run", name
        tool, arguments, output = _told_of(kind, details)
        failed = step.status in _FAILED or step.last_error is not None
        if output is None:
            output = step.last_error if step.last_error is not None else {"status": step.status or "completed"}
        if name not in self._announced:
            yield port.ToolCallAnnounced(name, tool, True, server)
        yield port.ToolCallReady(name, tool, arguments, True, server, name, question)
        yield port.ToolResultReady(name, output, failed)


def _told_of(kind: str, details: dict[str, Json]) -> tuple[str, str, Json]:
    """Name, arguments and output of a call that the service has run; None for an output that it does not show."""
    match kind:
        case "code_interpreter":
            return kind, _json({"code": details.get("input")}), details.get("outputs")
        case "file_search":
            return kind, "{}", details.get("results")
    arguments, tool = details.get("arguments"), details.get("name")
    if isinstance(arguments, str):
        return tool if isinstance(tool, str) and tool else kind, arguments, details.get("output")
    return kind, "{}", details


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()
