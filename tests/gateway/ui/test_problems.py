"""Every kind of problem in words, with the page that shows why."""

import pytest

from gateway.core.diagnosis.problems import Problem, ProblemKind
from gateway.ui.problems import Told, context_page, task_page, told


def problem(kind: ProblemKind) -> Problem:
    return Problem(
        kind, "a", "<subject>", 3, took=42_000, usual=85, detail="detail", context="ctx", task="tsk", turn="trn"
    )


@pytest.mark.parametrize("kind", ProblemKind)
def test_each_kind_is_a_sentence_and_leads_somewhere(kind: ProblemKind) -> None:
    found = told(problem(kind))
    assert found.what.startswith("a: ")
    assert found.what.endswith(".")
    assert "<subject>" not in found.what
    assert found.to.startswith("/ui/")
    assert found.about == "<subject> · detail"


def test_a_slow_tool_is_measured_against_what_is_usual() -> None:
    assert told(problem(ProblemKind.SLOW)) == Told(
        "a: a tool runs for 42.0 s, usually 85 ms.", "/ui/tasks/tsk#turn-trn", "<subject> · detail"
    )


def test_ids_are_quoted_in_addresses() -> None:
    assert (task_page("a/b", "c#d"), context_page("?x")) == ("/ui/tasks/a%2Fb#turn-c%23d", "/ui/contexts/%3Fx")
