"""The tool calls of a run -> events. Law: the graph runs every call itself; a call is told as running when it is certain that
the graph has not stopped before it to ask.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from adapters.langgraph.state import HeldCall
from adapters.langgraph.wire import ToolCall, ToolCallChunk
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterEvent, ToolCallAnnounced, ToolCallArguments, ToolCallReady, ToolResultReady


@dataclass(slots=True)
class _Call:
    """`arguments` is the whole text, or None while it comes in `pieces`. `told` says that it is told as running."""

    id: str
    name: str
    pieces: list[str] = field(default_factory=list)
    arguments: str | None = None
    told: bool = False
    answered: bool = False


class RunCalls:
    def __init__(self, *, waits: bool) -> None:
        """`waits`: the graph may ask before it runs a call, so that a call is told with its result, or when the run ends."""
        self._waits = waits
        self._calls: dict[str, _Call] = {}
        self._parts: dict[tuple[str, Json], _Call] = {}
        self._refused: frozenset[str] = frozenset()

    def go_on(
        self, calls: Iterable[HeldCall], questions: Mapping[str, str], refused: Iterable[str]
    ) -> Iterator[AdapterEvent]:
        """The run goes on with calls of an earlier run. `questions` has the approved question of a call; those that were
        `refused` do not run, and their results are the word of the graph on that."""
        self._refused = frozenset(refused)
        for held in calls:
            if held.id in self._refused:
                continue
            call = self._calls[held.id] = _Call(held.id, held.name, arguments=held.arguments)
            yield ToolCallAnnounced(call.id, call.name, handled=True)
            yield from self._tell(call, questions.get(held.id))

    def add(self, message: str, chunks: Iterable[ToolCallChunk]) -> Iterator[AdapterEvent]:
        """Pieces of the calls of a message."""
        for chunk in chunks:
            call = self._parts.get((message, chunk.index))
            if chunk.id and (call is None or call.id != chunk.id):
                call = self._calls.get(chunk.id)
                if call is None:
                    call = self._calls[chunk.id] = _Call(chunk.id, chunk.name or "")
                    yield ToolCallAnnounced(call.id, call.name, handled=True)
                self._parts[message, chunk.index] = call
            if call is not None and chunk.args and call.arguments is None:
                call.pieces.append(chunk.args)
                yield ToolCallArguments(call.id, chunk.args)

    def end(self, message: str) -> Iterator[AdapterEvent]:
        """The pieces of the calls of a message are complete."""
        for (owner, _), call in self._parts.items():
            if owner == message and call.arguments is None:
                yield from self._complete(call, "".join(call.pieces))

    def complete(self, calls: Iterable[ToolCall]) -> Iterator[AdapterEvent]:
        """The calls of a whole message."""
        for given in calls:
            call = self._calls.get(given.id or "")
            if call is None and given.id:
                call = self._calls[given.id] = _Call(given.id, given.name or "")
                yield ToolCallAnnounced(call.id, call.name, handled=True)
            if call is not None and call.arguments is None:
                # Deltas that callers have seen join to the text of the model, and not to that of the server.
                yield from self._complete(call, "".join(call.pieces) or given.arguments)

    def answer(self, call_id: str, name: str, output: Json, *, error: bool) -> Iterator[AdapterEvent]:
        """The result of a call. One whose call is not known belongs to an earlier run."""
        call = self._calls.get(call_id)
        if call_id in self._refused or (call is not None and call.answered):
            return
        if call is None:
            call = self._calls[call_id] = _Call(call_id, name, arguments="{}")
            yield ToolCallAnnounced(call_id, name, handled=True)
        if call.arguments is None:
            call.arguments = "".join(call.pieces)
        yield from self._tell(call)
        call.answered = True
        yield ToolResultReady(call_id, output, error)

    @property
    def held(self) -> tuple[HeldCall, ...]:
        """The complete calls that have no result."""
        open_ = (call for call in self._calls.values() if not call.answered)
        return tuple(HeldCall(call.id, call.name, call.arguments) for call in open_ if call.arguments is not None)

    def close(self) -> Iterator[AdapterEvent]:
        """The run has ended, and asks nothing: what became of a call without a result is not known."""
        for call in self._calls.values():
            if call.arguments is not None:
                yield from self._tell(call)

    def _complete(self, call: _Call, arguments: str) -> Iterator[AdapterEvent]:
        call.arguments = arguments or "{}"
        if not self._waits:
            yield from self._tell(call)

    def _tell(self, call: _Call, question: str | None = None) -> Iterator[AdapterEvent]:
        if not call.told:
            call.told = True
            yield ToolCallReady(call.id, call.name, call.arguments or "{}", handled=True, question=question)
