"""Where the spans of a turn belong, and which of them the ledger tells of."""

from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.core.tools.tool_call import TIMED_OUT, Settled
from gateway.core.turn_trace import (
    UNSENT,
    TurnTrace,
    begin_of_round,
    failure_of,
    locate,
    spent_since,
    tool_failure,
)
from gateway.foundation import trace
from gateway.foundation.trace import TraceContext
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ledger.tasks import Usage
from gateway.ledger.traces import RecordedCall, RecordedTool, RecordedTurn
from gateway.ports.spans import CallSpan, Span, Tokens, ToolSpan, TrySpan, TurnSpan
from tests.support.spans import CALLER

USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
FIRST = RecordedCall(0, 0, None, 1000, 1100, 2000, USAGE)
TOOL = RecordedTool("tool-1", "add", "test:box", ToolCallStatus.COMPLETED, 2100, 2200)
SECOND = RecordedCall(1, 0, "unreachable", 2300, None, 2400, None)
THIRD = RecordedCall(1, 1, None, 2500, 2600, None, None)
OPEN_TOOL = RecordedTool("tool-2", "add", None, ToolCallStatus.RUNNING, 2300, None)
TURN = RecordedTurn(None, 900, None, "process-1", TurnStatus.RUNNING, None, (FIRST, SECOND, THIRD), (TOOL, OPEN_TOOL))


def always(_: str, __: TraceContext | None) -> bool:
    return True


def of(caller: str | None = None) -> TurnTrace:
    return TurnTrace.of("turn-1", caller, always, "task-1", "c", "echo", None)


def in_words(spans: list[Span]) -> list[str]:
    names = {CallSpan: "call", TrySpan: "try", ToolSpan: "tool", TurnSpan: "turn"}
    return [f"{names[type(span)]} {span.began}-{span.ended} {span.failure}".strip() for span in spans]


def test_a_turn_without_a_caller_is_the_first_of_a_trace_of_its_own() -> None:
    place, parent = locate("turn-1", None, always)
    assert (place.trace_id, parent, place.sampled) == (trace.trace_id("turn-1"), "", True)
    assert locate("turn-1", None, always) == (place, parent)


def test_a_turn_is_a_part_of_the_trace_of_its_caller() -> None:
    caller = replace(CALLER, state="a=1")
    place, parent = locate("turn-1", caller.text, always)
    assert (place.trace_id, place.state, parent) == (CALLER.trace_id, "a=1", CALLER.span_id)


def test_a_trace_that_nobody_wants_stays_one() -> None:
    asked: list[tuple[str, TraceContext | None]] = []

    def never(trace_id: str, caller: TraceContext | None) -> bool:
        asked.append((trace_id, caller))
        return False

    assert not locate("turn-1", CALLER.text, never)[0].sampled
    assert not locate("turn-1", None, never)[0].sampled
    assert asked == [(CALLER.trace_id, CALLER), (trace.trace_id("turn-1"), None)]


def test_spans_have_the_ids_that_any_process_gives_them() -> None:
    one, other = of(), of()
    assert one.place_of_call(1) == other.place_of_call(1)
    places = [one.place, one.place_of_call(0), one.place_of_call(1), one.place_of_tool("0"), one.place_of_tool("1")]
    assert len({place.span_id for place in places}) == 5
    assert {place.trace_id for place in places} == {one.place.trace_id}


def test_a_process_that_goes_on_tells_what_has_ended_and_not_what_is_open() -> None:
    told = list(of().untold(TURN, 9000, (1, 1)))
    assert in_words(told) == ["call 1000-2000", "try 2300-2400 unreachable", "tool 2100-2200"]
    [call] = [span for span in told if isinstance(span, CallSpan)]
    assert (call.tokens, call.first, call.attempts) == (Tokens(5, None, 2, None), 1100, 1)
    assert {span.parent for span in told if not isinstance(span, TrySpan)} == {of().place.span_id}
    assert [span.parent for span in told if isinstance(span, TrySpan)] == [of().place_of_call(1).span_id]


def test_a_call_that_is_made_again_has_a_failed_try() -> None:
    recorded = replace(TURN, calls=(replace(FIRST, ended=None),), tools=())
    assert in_words(list(of().untold(recorded, 9000, (0, 1)))) == ["try 1000-9000 gateway-restarted"]
    assert in_words(list(of().untold(recorded, 9000, (0, 0)))) == []


def test_what_was_sent_long_before_is_not_told_again() -> None:
    late = RecordedCall(2, 0, None, UNSENT + 2300, None, None, None)
    recorded = replace(TURN, calls=(FIRST, SECOND, THIRD, late), tools=(TOOL,))
    assert in_words(list(of().untold(recorded, UNSENT + 9000, (2, 0)))) == ["try 2300-2400 unreachable"]


def test_a_turn_that_no_process_ends_is_told_whole() -> None:
    ended = replace(TURN, status=TurnStatus.FAILED, failure="gateway-restarted", ended_at=9000, trace=CALLER.text)
    told = list(of(CALLER.text).at_end(ended, 9000, taken_over=True))
    assert in_words(told) == [
        "call 1000-2000",
        "try 2300-2400 unreachable",
        "call 2300-9000 gateway-restarted",
        "tool 2100-2200",
        "tool 2300-9000 interrupted",
        "turn 900-9000 gateway-restarted",
    ]
    turn = told[-1]
    assert isinstance(turn, TurnSpan)
    assert (turn.state, turn.taken_over, turn.parent) == (TaskState.FAILED, True, CALLER.span_id)
    assert turn.tokens == Tokens(5, None, 2, None)


def test_what_ends_with_the_turn_does_not_say_when_its_process_died() -> None:
    settled = replace(OPEN_TOOL, ended=90_000, status=ToolCallStatus.INTERRUPTED)
    ended = replace(TURN, status=TurnStatus.FAILED, failure="x", ended_at=90_000, calls=(FIRST,), tools=(TOOL, settled))
    told = list(of().at_end(ended, 90_000, taken_over=True))
    assert in_words(told) == ["call 1000-2000", "tool 2100-2200", "tool 2300-90000 interrupted", "turn 900-90000 x"]


def test_a_process_does_not_tell_twice_what_it_has_told() -> None:
    ended = replace(TURN, status=TurnStatus.CANCELLED, ended_at=9000, calls=(FIRST,), tools=(TOOL,))
    assert in_words(list(of().at_end(ended, 9000, taken_over=False))) == ["turn 900-9000 cancelled"]


def test_the_begin_of_a_round_is_that_of_its_first_try() -> None:
    assert (begin_of_round(TURN, 1), begin_of_round(TURN, 7)) == (2300, None)


def test_a_rejected_message_is_no_failure() -> None:
    found = [failure_of(status, "why") for status in (TurnStatus.REJECTED, TurnStatus.FAILED, TurnStatus.CANCELLED)]
    assert found == ["", "why", "cancelled"]
    assert failure_of(TurnStatus.FAILED, None) == "failed"


def test_a_tool_that_took_too_long_says_so() -> None:
    outcomes = [
        Settled(ToolCallStatus.COMPLETED, 1),
        Settled(ToolCallStatus.FAILED, "no"),
        Settled(ToolCallStatus.CANCELLED, TIMED_OUT),
    ]
    assert list(map(tool_failure, outcomes)) == ["", "failed", "timeout"]


def test_the_tokens_of_a_call_are_those_that_it_has_added() -> None:
    before, after = Usage(5, None, 2), Usage(9, 3, 4, None, 13)
    assert spent_since(before, after) == Usage(4, 3, 2, None, 13)
    assert spent_since(Usage(), after) == Usage(9, 3, 4, None, 13)
