"""Tool calls in the messages of other agents: those of the extension `tool-calls/v1`, and the parts of Google ADK, kagent and
trpc on which its shape rests. Law: pure; a call that may still turn out to be a question is held until that is known.

Source: docs/extensions/tool-calls.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from adapters.a2a.state import Asked
from gateway.a2a.model import Json, Part
from gateway.a2a.tool_calls import ENDS, GOOD_ENDS, URI, Phase
from gateway.ports.adapter import AdapterEvent, ApprovalAsked, ToolCallAnnounced, ToolCallReady, ToolResultReady

_LABELS = ("adk_type", "type", "kagent_type")
_MCP = "mcp:"
_RUN = ":run"
"""Behind the id of a question: the id of the call that was approved."""


@dataclass(slots=True)
class ToolCallReader:
    """`asked` are the questions that the request has answered, `known` the calls that were given out before it. `told` are
    all that were given out, by their ids. `given` are the ids under which those were given out whose outcome has not come, with
    those of the known calls to begin with."""

    asked: dict[str, Asked]
    known: frozenset[str] = frozenset()
    given: dict[str, str] = field(default_factory=dict)
    told: dict[str, None] = field(default_factory=dict)
    _held: dict[str, Asked] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # A call that was approved is given out when it runs.
        self.told = {call: None for call in self.known if call not in self.asked}
        self._ended = self.told.keys() - self.given.keys()

    def part(self, part: Part) -> list[AdapterEvent] | None:
        """The events of a part that is about a call of the agent's own; None for any other part."""
        metadata, data = part.metadata, part.data
        if metadata is None or not isinstance(data, dict):
            return None
        label = next((metadata[name] for name in _LABELS if name in metadata), None)
        facts = metadata.get(URI)
        facts = facts if isinstance(facts, dict) else {}
        match label, data:
            case "function_call", {"id": str(call), "name": str(name), "args": dict(given)}:
                return None if facts.get("origin") == "client" else list(self._called(call, name, given, facts))
            case "function_response", {"id": str(call), "name": str(name), "response": response}:
                return list(self._answered(call, name, response, facts))
        return None

    def phase(self, facts: Json) -> list[AdapterEvent]:
        """The events of a phase that travels as metadata."""
        match facts:
            case {"phase": Phase.EXECUTING | Phase.PROGRESS, "callId": str(call), "name": str(name)}:
                return list(self._runs(call, name))
        return []

    def questions(self, metadata: dict[str, Json] | None) -> tuple[Asked, ...]:
        """The calls that the message of a waiting status asks about. What else is held is known to run."""
        match (metadata or {}).get(URI):
            case {"approval": {"tools": [*tools]}}:
                return tuple(found for each in tools if (found := self._question(each)) is not None)
        return ()

    def ask(self, questions: tuple[Asked, ...]) -> Iterator[AdapterEvent]:
        """The questions as the port has them, behind the calls that are none."""
        asked = {each.id for each in questions}
        for call, held in list(self._held.items()):
            if call not in asked:
                yield from self._runs(call, held.name)
        for each in questions:
            yield ApprovalAsked(each.id, each.name, each.arguments, each.server)

    def _question(self, tool: Json) -> Asked | None:
        match tool:
            case {"id": str(call), "name": str(name)} if call not in self.told:
                held, given = self._held.get(call), tool.get("args")
                server = held.server if held is not None else ""
                return Asked(call, name, _text(given if isinstance(given, dict) else {}), server.removeprefix(_MCP))
        return None

    def _called(self, call: str, name: str, given: dict[str, Json], facts: dict[str, Json]) -> Iterator[AdapterEvent]:
        if call in self.told or call in self._held or call in self.asked:
            return
        raw = given.get("raw")
        arguments = raw if given.keys() == {"raw"} and isinstance(raw, str) else _text(given)
        server = facts.get("server")
        self._held[call] = Asked(call, name, arguments, server if isinstance(server, str) else "")
        if not facts:
            yield from self._runs(call, name)

    def _runs(self, call: str, name: str) -> Iterator[AdapterEvent]:
        """The call is one that the agent runs itself."""
        if call in self.told:
            return
        self.told[call] = None
        question = self.asked.get(call)
        known = self._held.pop(call, question) or Asked(call, name, "{}")
        public = self.given[call] = call if question is None else f"{call}{_RUN}"
        server = known.server or None
        yield ToolCallAnnounced(public, known.name, handled=True, server=server)
        yield ToolCallReady(
            public,
            known.name,
            known.arguments,
            handled=True,
            server=server,
            question=None if question is None else call,
        )

    def _answered(self, call: str, name: str, response: Json, facts: dict[str, Json]) -> Iterator[AdapterEvent]:
        phase = facts.get("phase")
        if call in self._ended or (phase == Phase.REJECTED and call in self.asked):
            # The decision is its own outcome.
            return
        yield from self._runs(call, name)
        self._ended.add(call)
        public = self.given.pop(call, call)
        failed = phase in ENDS and phase not in GOOD_ENDS
        match response:
            case {"error": {"message": str(words)}, **more} if not more:
                yield ToolResultReady(public, words, error=True)
            case {"result": output, **more} if not more:
                yield ToolResultReady(public, output, error=failed)
            case _:
                yield ToolResultReady(public, response, error=failed)


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()
