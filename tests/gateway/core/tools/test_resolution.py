"""The effect of answers: each is for a call that the task asks about, and counts once."""

import pytest

from gateway.a2a.errors import InvalidParams
from gateway.a2a.model import Json
from gateway.core.tools.answers import Answers, ClientResult, Decision, Resolution, is_repetition, resolve
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.tool_calls import AskedCall, ToolCallRecord

NOW = 1000


def asked(
    name: str,
    status: str = "pending_approval",
    *,
    executor: str = "gateway",
    decision: str | None = None,
    **more: object,
) -> AskedCall:
    record = ToolCallRecord(name, "call", 0, 0, 0, "c", name, '{"x": 1}', executor, ToolCallStatus(status))
    return AskedCall(record, "digest", decision, more.get("expires_at"), more.get("outcome"))  # type: ignore[arg-type]


A, B = asked("a"), asked("b")
APPROVED = asked("a", "completed", decision="approved")
EXPIRED = asked("a", "rejected", decision="expired")
CLIENT = asked("c", "announced", executor="client")


def given(*answers: Decision | ClientResult) -> Answers:
    decisions = tuple(one for one in answers if isinstance(one, Decision))
    return Answers(decisions, tuple(one for one in answers if isinstance(one, ClientResult)), ())


def yes(call: str | None) -> Decision:
    return Decision("part.id", call, approved=True)


def no(call: str | None) -> Decision:
    return Decision("part.id", call, approved=False)


def result(call: str, output: object = 1, *, error: bool = False, name: str | None = None) -> ClientResult:
    return ClientResult("part", call, output, error, name)


@pytest.mark.parametrize(
    ("answers", "calls", "decided", "brought"),
    [
        (given(yes("a")), [A, B], ["a"], []),
        (given(yes("a"), no("b")), [A, B], ["a", "b"], []),
        (given(yes("a"), yes("a")), [A], ["a"], []),
        (given(yes(None)), [A, B, CLIENT], ["a", "b"], []),
        (given(yes("a")), [APPROVED, B], [], []),
        (given(no("a")), [EXPIRED], [], []),
        (given(yes(None)), [APPROVED], [], []),
        (given(result("c"), yes("a")), [A, CLIENT], ["a"], ["c"]),
        (given(result("c", 7)), [asked("c", "completed", executor="client", outcome=7)], [], []),
        (given(result("c"), result("c")), [CLIENT], [], ["c"]),
    ],
)
def test_only_what_is_new_is_left(
    answers: Answers, calls: list[AskedCall], decided: list[str], brought: list[str]
) -> None:
    found = resolve(answers, calls, NOW)
    assert (list(found.decisions), list(found.results)) == (decided, brought)
    assert bool(found) == bool(decided or brought)


@pytest.mark.parametrize(
    ("answers", "calls", "why"),
    [
        (given(yes("z")), [A], "is no call that this task asks about"),
        (given(result("z")), [CLIENT], "is no call that this task asks about"),
        (given(yes(None)), [CLIENT], "no call waits for a decision"),
        (given(yes("a"), no("a")), [A], "approved and rejected in one message"),
        (given(yes(None), no("a")), [A], "approved and rejected in one message"),
        (given(no("a")), [APPROVED], r"is decided already \(approved\)"),
        (given(yes("a")), [EXPIRED], r"is decided already \(expired\)"),
        (given(yes("c")), [CLIENT], "needs no decision"),
        (given(yes("a")), [asked("a", expires_at=NOW)], "the time to decide 'a' is over"),
        (given(result("a")), [A], "is not a call that its caller runs"),
        (given(result("c", 1), result("c", 2)), [CLIENT], "two results in one message"),
        (given(result("c", 1), result("c", 1, error=True)), [CLIENT], "two results in one message"),
        (given(result("c", 8)), [asked("c", "completed", executor="client", outcome=7)], "has ended already"),
    ],
)
def test_what_does_not_fit_is_refused_and_names_its_field(answers: Answers, calls: list[AskedCall], why: str) -> None:
    with pytest.raises(InvalidParams, match=why) as caught:
        resolve(answers, calls, NOW)
    assert caught.value.violations[0].field == "part.id"


def test_a_result_is_for_the_tool_that_was_called() -> None:
    with pytest.raises(InvalidParams, match="'c' is a call of 'c', not of 'pay'") as caught:
        resolve(given(result("c", name="pay")), [CLIENT], NOW)
    assert caught.value.violations[0].field == "part.name"
    assert list(resolve(given(result("c", name="c")), [CLIENT], NOW).results) == ["c"]


@pytest.mark.parametrize(("value", "meant"), [(1, True), (1.0, True), (True, False), ("1", False), (1.5, False)])
def test_repeated_arguments_are_compared_by_value_and_kind(value: Json, meant: bool) -> None:
    decision = Decision("part.id", "a", approved=True, args={"x": value})
    assert is_repetition(given(decision), [APPROVED], NOW) is meant


def test_a_decision_on_other_arguments_is_refused() -> None:
    wrong, right = (
        Decision("field", "a", approved=True, args={"x": 2}),
        Decision("field", "a", approved=True, args={"x": 1}),
    )
    with pytest.raises(InvalidParams, match="with other arguments"):
        resolve(given(wrong), [A], NOW)
    assert resolve(given(right), [A], NOW) == Resolution({"a": right}, {})


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (given(yes("a")), True),
        (given(no("a")), False),
        (given(yes("b")), False),
        (given(yes("z")), False),
        (given(yes(None)), False),
    ],
)
def test_a_repeat_says_the_same_of_the_same_calls(answers: Answers, expected: bool) -> None:
    assert is_repetition(answers, [APPROVED, B], NOW) is expected
