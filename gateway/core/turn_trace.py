"""The spans of a turn: where each belongs, and those that the ledger tells of. Law: pure; a span has the same ids whichever
process tells it, and none but that of the turn is the parent of another, except for tries of a service call.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from gateway.a2a.model import Json, TaskState
from gateway.core import usage
from gateway.core.agents import Agent
from gateway.core.tools.tool_call import TIMED_OUT, Settled
from gateway.foundation import trace
from gateway.foundation.trace import TraceContext
from gateway.ledger.calls import RESTARTED
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ledger.tasks import Usage
from gateway.ledger.traces import RecordedCall, RecordedTool, RecordedTurn
from gateway.ports.capabilities import Backend, Model
from gateway.ports.spans import NO_TOKENS, CallSpan, Span, Tokens, ToolSpan, TrySpan, TurnSpan

UNSENT = 15_000
"""Milliseconds: what ended longer than that before the last that a process recorded, it has also sent."""

_TOOL_FAILURES: Mapping[ToolCallStatus, str] = {
    ToolCallStatus.FAILED: "failed",
    ToolCallStatus.NOT_FOUND: "not_found",
    ToolCallStatus.CANCELLED: "cancelled",
    ToolCallStatus.INTERRUPTED: "interrupted",
    ToolCallStatus.REJECTED: "rejected",
    ToolCallStatus.RUNNING: "interrupted",
}

_STATES: Mapping[TurnStatus, TaskState] = {
    TurnStatus.COMPLETED: TaskState.COMPLETED,
    TurnStatus.FAILED: TaskState.FAILED,
    TurnStatus.CANCELLED: TaskState.CANCELED,
    TurnStatus.REJECTED: TaskState.REJECTED,
}

Samples = Callable[[str, TraceContext | None], bool]
"""`Observer.samples`."""


def locate(turn: str, caller: str | None, samples: Samples) -> tuple[TraceContext, str]:
    """Where the span of a turn belongs, and the id of its parent, which is empty where it has none. `caller` as it is stored
    with the turn."""
    parent = trace.from_text(caller)
    here = trace.span_id(turn, "turn")
    if parent is None:
        trace_id = trace.trace_id(turn)
        return TraceContext(trace_id, here).beside(here, sampled=samples(trace_id, None)), ""
    return parent.beside(here, sampled=samples(parent.trace_id, parent)), parent.span_id


class TurnTrace(msgspec.Struct, frozen=True):
    """What all spans of a turn have in common. `place` is that of the turn itself."""

    place: TraceContext
    parent: str
    turn: str
    task: str
    context: str
    agent: str
    backend: Backend | None = None
    model: Model | None = None

    @classmethod
    def of(
        cls, turn: str, caller: str | None, samples: Samples, task: str, context: str, name: str, agent: Agent | None
    ) -> "TurnTrace":
        """`agent` is None where it is gone."""
        place, parent = locate(turn, caller, samples)
        backend, model = (None, None) if agent is None else (agent.backend, agent.model)
        return cls(place, parent, turn, task, context, name, backend, model)

    def place_of_call(self, round_: int) -> TraceContext:
        return self.place.child(self.turn, "call", round_)

    def place_of_tool(self, call: str) -> TraceContext:
        return self.place.child(self.turn, "tool", call)

    def of_turn(
        self,
        began: int,
        ended: int,
        state: TaskState,
        failure: str,
        spent: Usage,
        *,
        taken_over: bool,
        said: Json = None,
        answered: Json = None,
    ) -> TurnSpan:
        return TurnSpan(
            place=self.place,
            parent=self.parent,
            began=began,
            ended=ended,
            failure=failure,
            agent=self.agent,
            context=self.context,
            task=self.task,
            turn=self.turn,
            state=state,
            tokens=tokens(spent),
            taken_over=taken_over,
            said=said,
            answered=answered,
        )

    def of_call(
        self, round_: int, attempts: int, began: int, first: int | None, ended: int, failure: str, spent: Usage
    ) -> CallSpan:
        return CallSpan(
            place=self.place_of_call(round_),
            parent=self.place.span_id,
            began=began,
            ended=ended,
            failure=failure,
            agent=self.agent,
            context=self.context,
            round=round_,
            attempts=attempts,
            backend=self.backend,
            model=self.model,
            first=first,
            tokens=tokens(spent),
        )

    def of_try(self, round_: int, attempt: int, began: int, ended: int, failure: str) -> TrySpan:
        return TrySpan(
            place=self.place.child(self.turn, "try", round_, attempt),
            parent=self.place_of_call(round_).span_id,
            began=began,
            ended=ended,
            failure=failure,
            agent=self.agent,
            attempt=attempt,
            backend=self.backend,
        )

    def of_tool(
        self,
        call: str,
        tool: str,
        source: str | None,
        began: int,
        ended: int,
        failure: str,
        *,
        arguments: Json = None,
        result: Json = None,
    ) -> ToolSpan:
        return ToolSpan(
            place=self.place_of_tool(call),
            parent=self.place.span_id,
            began=began,
            ended=ended,
            failure=failure,
            agent=self.agent,
            context=self.context,
            tool=tool,
            call=call,
            source=source or "",
            arguments=arguments,
            result=result,
        )

    # --- what the ledger tells

    def untold(self, recorded: RecordedTurn, now: int, following: tuple[int, int] | None = None) -> Iterator[Span]:
        """What ended so late that its process may have died before it has sent it. `following` are the round and the attempt
        with which the turn goes on: that service call is told when it ends, and an earlier try of it ends now."""
        since = _latest(recorded) - UNSENT
        for round_, tries in _rounds(recorded):
            if following is not None and round_ == following[0]:
                earlier = [_cut(one, now) for one in tries if one.attempt < following[1]]
                yield from self._failed(round_, earlier, since)
                continue
            yield from self._failed(round_, tries[:-1], since)
            ended = tries[-1].ended
            if ended is not None and ended >= since:
                yield self._whole(round_, tries, ended, "")
        for tool in recorded.tools:
            if tool.ended is not None and tool.ended >= since:
                yield self._tool(tool, tool.ended)

    def at_end(self, recorded: RecordedTurn, ended: int, *, taken_over: bool) -> Iterator[Span]:
        """What is left to tell of a turn that has ended in no process. `taken_over`: another one has begun it."""
        failure = failure_of(recorded.status, recorded.failure)
        since = _latest(recorded) - UNSENT if taken_over else ended
        for round_, tries in _rounds(recorded):
            yield from self._failed(round_, tries[:-1], since)
            last = tries[-1].ended
            if last is None or last >= since:
                yield self._whole(round_, tries, ended if last is None else last, failure)
        for tool in recorded.tools:
            if tool.ended is None or tool.ended >= since:
                yield self._tool(tool, ended if tool.ended is None else tool.ended)
        spent = usage.total(usage.read(call.usage) for call in recorded.calls)
        state = _STATES.get(recorded.status, TaskState.WORKING)
        yield self.of_turn(recorded.accepted_at, ended, state, failure, spent, taken_over=taken_over)

    def _failed(self, round_: int, tries: Sequence[RecordedCall], since: int) -> Iterator[TrySpan]:
        for one in tries:
            if one.ended is not None and one.ended >= since:
                yield self.of_try(round_, one.attempt, one.began, one.ended, one.error_class or "unknown")

    def _whole(self, round_: int, tries: Sequence[RecordedCall], ended: int, otherwise: str) -> CallSpan:
        last = tries[-1]
        failure = last.error_class or ("" if last.ended is not None else otherwise)
        spent = usage.total(usage.read(one.usage) for one in tries)
        return self.of_call(round_, last.attempt + 1, tries[0].began, last.first, ended, failure, spent)

    def _tool(self, tool: RecordedTool, ended: int) -> ToolSpan:
        failure = _TOOL_FAILURES.get(tool.status, "")
        return self.of_tool(tool.id, tool.name, tool.server, tool.began, ended, failure)


def tool_failure(settled: Settled) -> str:
    """Empty for a call that went well."""
    return "timeout" if settled.output == TIMED_OUT else _TOOL_FAILURES.get(settled.status, "")


def failure_of(status: TurnStatus, failure: str | None) -> str:
    """Why a turn did not go well; empty where it did, or where its agent has rejected the message."""
    if status is TurnStatus.FAILED:
        return failure or "failed"
    return "cancelled" if status is TurnStatus.CANCELLED else ""


def begin_of_round(recorded: RecordedTurn, round_: int) -> int | None:
    """The time of the first try of this round; None where there was none."""
    return next((call.began for call in recorded.calls if call.round == round_), None)


def spent_since(before: Usage, after: Usage) -> Usage:
    """The tokens that have been added to those of a turn."""
    if before is usage.NONE:
        return after
    earlier, later = msgspec.structs.astuple(before), msgspec.structs.astuple(after)
    return Usage(*(None if now is None else now - (then or 0) for then, now in zip(earlier, later, strict=True)))


def tokens(spent: Usage) -> Tokens:
    if spent is usage.NONE:
        return NO_TOKENS
    return Tokens(spent.input_tokens, spent.cached_tokens, spent.output_tokens, spent.reasoning_tokens)


def _rounds(recorded: RecordedTurn) -> Iterator[tuple[int, list[RecordedCall]]]:
    for round_, tries in groupby(recorded.calls, key=attrgetter("round")):
        yield round_, list(tries)


def _cut(one: RecordedCall, now: int) -> RecordedCall:
    """Its process has died."""
    return one if one.ended is not None else msgspec.structs.replace(one, ended=now, error_class=RESTARTED)


def _latest(recorded: RecordedTurn) -> int:
    """When its process recorded something of the turn last. What has ended with the turn was ended by whoever ended that."""
    done: tuple[RecordedCall | RecordedTool, ...] = (*recorded.calls, *recorded.tools)
    times = [one.began if one.ended is None or one.ended == recorded.ended_at else one.ended for one in done]
    return max(times, default=recorded.accepted_at)
