"""The spans of a turn that runs here, and of one that has ended in no process. Law: each is told behind the commit of what it
tells; what a turn does belongs to its span, also where nobody wants that span.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec import UNSET

from gateway.a2a import tool_calls
from gateway.a2a.model import TERMINAL, Json, Message, TaskState
from gateway.a2a.tool_calls import Rendering
from gateway.a2a.weight import data_weight
from gateway.core.agents import Agent
from gateway.core.task_record import TurnOutput
from gateway.core.tools.tool_call import PHASES, Settled, ToolCall
from gateway.core.turn_trace import TurnTrace, begin_of_round, spent_since, tool_failure
from gateway.engine.runtime import Runtime
from gateway.engine.turn_context import TurnContext
from gateway.engine.turn_run import TurnRun
from gateway.foundation import trace
from gateway.foundation.off_loop import off_loop
from gateway.foundation.trace import TraceContext
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.tasks import TaskRecord, Usage
from gateway.ports.spans import Span

LONGEST = 8192
"""Characters of a text, and bytes of a result, that a span has of what was said."""


class _Call(NamedTuple):
    """A service call under way. `before` are the tokens of the turn when it began."""

    context: TurnContext
    round: int
    began: int
    before: Usage


class TurnSpans:
    """Of one run of a turn. What an earlier process may not have sent is told again."""

    __slots__ = (
        "_call",
        "_clock",
        "_first_round",
        "_observer",
        "_run",
        "_taken_over",
        "_tools",
        "_trace",
        "_try_began",
    )

    def __init__(self, runtime: Runtime, run: TurnRun) -> None:
        """What this task does from now on belongs to the turn."""
        self._run, self._clock, self._observer = run, runtime.clock, runtime.observer
        self._trace = TurnTrace.of(
            run.turn, run.trace, runtime.observer.samples, run.live.id, run.live.context_id, run.agent.name, run.agent
        )
        self._call: _Call | None = None
        self._tools: dict[str, tuple[ToolCall, int]] = {}
        self._try_began = 0
        self._first_round: tuple[int, int] | None = None
        recorded, point = run.recorded, run.resume_point
        self._taken_over = recorded is not None and recorded.process != runtime.holder
        trace.enter(self._trace.place)
        if recorded is not None and self._taken_over:
            following = None if point is None else (point.round, point.attempt)
            self._tell(*self._trace.untold(recorded, self._clock.now(), following))
            began = None if point is None else begin_of_round(recorded, point.round)
            if point is not None and began is not None:
                self._first_round = point.round, began

    @property
    def place(self) -> TraceContext:
        """Where the turn is in its trace."""
        return self._trace.place

    # --- service calls

    @contextmanager
    def call(self, context: TurnContext) -> Iterator[None]:
        """While the next service call is made. One that does not come to its end here ends with the turn."""
        point, now = self._run.resume_point, self._clock.now()
        round_ = context.machine.round if point is None else point.round
        first, self._first_round = self._first_round, None
        began = first[1] if first is not None and first[0] == round_ else now
        self._call, self._try_began = _Call(context, round_, began, self._run.live.outputs[-1].usage), now
        token = trace.enter(self._trace.place_of_call(round_))
        try:
            yield
            self._end_call(_failure(self._run))
        finally:
            trace.leave(token)

    def tried(self, failure: str) -> None:
        """A try has failed, and another one follows."""
        now, call = self._clock.now(), self._call
        if call is not None:
            self._tell(self._trace.of_try(call.round, call.context.attempt - 1, self._try_began, now, failure))
        self._try_began = now

    def tries_again(self) -> None:
        """After its wait."""
        self._try_began = self._clock.now()

    def _end_call(self, failure: str) -> None:
        call, self._call = self._call, None
        if call is not None:
            attempts, first = call.context.attempt + 1, call.context.first_at
            spent, now = spent_since(call.before, self._run.live.outputs[-1].usage), self._clock.now()
            self._tell(self._trace.of_call(call.round, attempts, call.began, first, now, failure, spent))

    # --- tools

    def begin_tool(self, call: ToolCall) -> None:
        """What this task does from now on belongs to the call."""
        self._tools[call.facts.id] = call, self._clock.now()
        trace.enter(self._trace.place_of_tool(call.facts.id))

    def pause_tool(self, call: ToolCall) -> None:
        """It did nothing, and runs again."""
        self._tools.pop(call.facts.id, None)

    async def end_tool(self, call: ToolCall, settled: Settled, masks: Rendering) -> None:
        """`settled` is the outcome before any masks, `masks` are those of the caller."""
        _, began = self._tools.pop(call.facts.id)
        arguments = result = None
        if self._observer.contents and self._trace.place.sampled:
            shown = Rendering(redact=(*self._run.agent.policies.tool_calls.redact, *masks.redact), max_result=LONGEST)
            # A mask cannot be found in a piece of a result.
            whole = settled.output if settled.under_masks is UNSET else settled.under_masks
            size = len(call.arguments or "") + data_weight(whole)
            arguments, result = await off_loop(size, _content, call, settled.status, whole, shown)
        self._tell(self._of_tool(call, began, tool_failure(settled), arguments, result))

    def _of_tool(self, call: ToolCall, began: int, failure: str, arguments: Json = None, result: Json = None) -> Span:
        facts, now = call.facts, self._clock.now()
        return self._trace.of_tool(
            facts.id, facts.name, facts.server, began, now, failure, arguments=arguments, result=result
        )

    # --- its end

    def end(self) -> None:
        """The run is over. A turn that has not ended goes on elsewhere or later, and is told of then."""
        live, recorded = self._run.live, self._run.recorded
        if live.status.state not in TERMINAL:
            return
        failure, output = _failure(self._run), live.outputs[-1]
        self._end_call(failure)
        for call, began in self._tools.values():
            self._tell(self._of_tool(call, began, "cancelled"))
        said = answered = None
        if self._observer.contents and self._trace.place.sampled:
            said, answered = [message_of(output.message)], [answer_of(output, failed=bool(failure))]
        began = self._run.accepted_at if recorded is None else recorded.accepted_at
        self._tell(
            self._trace.of_turn(
                began, self._clock.now(), live.status.state, failure, output.usage,
                taken_over=self._taken_over, said=said, answered=answered,
            )
        )  # fmt: skip

    def _tell(self, *spans: Span) -> None:
        if self._trace.place.sampled:
            for span in spans:
                self._observer.spanned(span)


async def tell_end(runtime: Runtime, turn: str, task: TaskRecord, agent: Agent | None) -> None:
    """Tells of a turn that has ended in no process, if it has ended. `agent` is None where it is gone."""
    observer = runtime.observer
    if not observer.traces:
        return
    recorded = None
    with suppress(LedgerUnavailable, CorruptRecord):
        recorded = await runtime.ledger.recorded_turn(turn)
    if recorded is None or recorded.ended_at is None:
        return
    place = TurnTrace.of(turn, recorded.trace, observer.samples, task.id, task.context_id, task.agent, agent)
    if place.place.sampled:
        for span in place.at_end(recorded, recorded.ended_at, taken_over=recorded.process != runtime.holder):
            observer.spanned(span)


def _failure(run: TurnRun) -> str:
    """Why the turn did not go well; empty where it did, or goes on."""
    status = run.live.status
    if status.state is TaskState.CANCELED:
        return "cancelled"
    if status.state is not TaskState.FAILED:
        return ""
    metadata = status.message.metadata if status.message is not None else None
    named = (metadata or {}).get("errorClass")
    return named if isinstance(named, str) else "failed"


# --- content


def _content(call: ToolCall, status: ToolCallStatus, output: Json, shown: Rendering) -> tuple[Json, Json]:
    data = tool_calls.requested(call.facts, call.arguments or "", shown).data
    arguments = data.get("args") if isinstance(data, dict) else None
    return arguments, tool_calls.respond(PHASES[status], output, shown).value


def message_of(message: Message) -> Json:
    """The texts of a message, in the form of the conventions for generative AI."""
    return {"role": "user", "parts": _texts(part.text for part in message.parts)}


def answer_of(output: TurnOutput, *, failed: bool) -> Json:
    """The texts of the artifacts of a turn."""
    artifacts = [builder.whole() for builder in output.artifacts.values()]
    texts = _texts(part.text for artifact in artifacts for part in artifact.parts)
    return {"role": "assistant", "parts": texts, "finish_reason": "error" if failed else "stop"}


def _texts(texts: Iterator[str | None]) -> list[Json]:
    """As many as a span has."""
    found: list[Json] = []
    left = LONGEST
    for text in texts:
        if text is not None and left > 0:
            found.append({"type": "text", "content": text[:left]})
            left -= len(text)
    return found
