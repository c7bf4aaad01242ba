"""Every kind of problem in words, with the page that shows why."""

import pytest
from msgspec.structs import replace

from gateway.core.diagnosis.problems import Problem, ProblemKind
from gateway.ui.problems import Told, context_page, grouped, task_page, told


def problem(kind: ProblemKind) -> Problem:
    return Problem(
        kind,
        "a",
        "<subject>",
        3,
        since=5,
        took=42_000,
        usual=85,
        detail="detail",
        correlation_id="c0ffee",
        context="ctx",
        task="tsk",
        turn="trn",
    )


@pytest.mark.parametrize("kind", ProblemKind)
def test_each_kind_is_a_sentence_and_leads_somewhere(kind: ProblemKind) -> None:
    found = told(problem(kind))
    assert found.what.startswith("a: ")
    assert found.what.endswith(".")
    assert "<subject>" not in found.what
    assert found.to.startswith("/ui/")
    assert (found.about, found.since) == ("<subject> · detail · correlation id c0ffee", 5)


def test_a_slow_tool_is_measured_against_what_is_usual() -> None:
    assert told(problem(ProblemKind.SLOW)) == Told(
        "a: a tool runs for 42.0 s, usually at most 85 ms.",
        "/ui/tasks/tsk#turn-trn",
        "<subject> · detail · correlation id c0ffee",
        5,
    )


def test_a_receiver_is_told_with_all_that_it_has_not_got() -> None:
    behind = replace(problem(ProblemKind.BEHIND), number=1336, deliveries=188)
    assert told(behind).what == "a: a receiver of notifications takes nothing, 1,336 events behind in 188 deliveries."
    stopped = replace(behind, kind=ProblemKind.STOPPED, number=1, deliveries=1)
    assert told(stopped).what == "a: a receiver of notifications is not told any more, 1 event behind in 1 delivery."
    assert "nothing, at least 1,336 events behind in 188" in told(replace(behind, least=True)).what


def test_ids_are_quoted_in_addresses() -> None:
    assert (task_page("a/b", "c#d"), context_page("?x")) == ("/ui/tasks/a%2Fb#turn-c%23d", "/ui/contexts/%3Fx")


def test_what_is_the_same_of_many_conversations_is_one_line_since_the_first_of_them() -> None:
    lost = problem(ProblemKind.LOST)
    [one] = grouped([lost, replace(lost, since=3, context="older"), replace(lost, context="third")])
    assert (one.to, one.since, one.number) == ("/ui/contexts/older", 3, 3)
    assert [each.to for each in one.like] == ["/ui/contexts/ctx", "/ui/contexts/third"]


def test_what_differs_is_not_one_line() -> None:
    slow = problem(ProblemKind.SLOW)
    failing = problem(ProblemKind.FAILING)
    others = [replace(slow, agent="b"), replace(slow, subject="other"), failing, replace(failing, detail="other")]
    assert [each.number for each in grouped([slow, *others])] == [1, 1, 1, 1, 1]


def test_of_very_many_the_first_are_told_one_by_one() -> None:
    [one] = grouped([replace(problem(ProblemKind.LOST), since=at) for at in range(100)])
    assert (one.number, len(one.like)) == (100, 20)
