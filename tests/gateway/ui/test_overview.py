"""The first line of the overview."""

from typing import Any

from gateway.ledger.admin.upkeep import FailureFact, OpenCount, Overview
from gateway.ledger.backlog import Backlog
from gateway.ledger.states import TurnStatus
from gateway.ui.overview import Fact, facts


def overview(
    failed: tuple[str, ...] = (), waiting: tuple[tuple[str, int], ...] = (), asked: tuple[str, ...] = ()
) -> Overview:
    failures = tuple([FailureFact(agent, None, "t", "th", "c", 1, True, 1, None) for agent in failed])
    counts = tuple([OpenCount(agent, TurnStatus.WAITING, turns, 1) for agent, turns in waiting])
    questions = tuple([OpenCount(agent, TurnStatus.WAITING, 1, 1) for agent in asked])
    none: tuple[Any, ...] = ()
    running = OpenCount("a", TurnStatus.RUNNING, 7, 1)
    rest = (none, none, none, none, none, Backlog(0, 0, 0, 0, 0), none)
    return Overview(1, (*counts, running), questions, none, none, failures, *rest)


def test_what_runs_is_no_news() -> None:
    assert [*facts(overview(), {"a"})] == []


def test_what_failed_is_told_by_agent_the_worst_first() -> None:
    assert [*facts(overview(("a", "b", "b")), {"a", "b"})] == [
        Fact("3 turns failed in the last hour", (("b", "/ui/agents/b#failures"), ("a", "/ui/agents/a#failures")), 0)
    ]


def test_an_agent_that_is_gone_leads_to_its_contexts() -> None:
    [fact] = facts(overview(("a/b",)), {})
    assert fact.words == "1 turn failed in the last hour"
    assert fact.agents == (("a/b", "/ui/contexts?agent=a%2Fb&standing=failed"),)


def test_what_waits_is_told_beside_it() -> None:
    [_, one] = facts(overview(("a",), (("a", 1),)), {"a"})
    [more] = facts(overview((), (("a", 1), ("b", 2))), {"a", "b"})
    assert (one.words, more.words) == ("1 waits for its caller", "3 wait for their callers")
    assert more.agents[0] == ("b", "/ui/contexts?agent=b&standing=waiting")


def test_a_turn_that_has_ended_with_a_question_waits_as_well() -> None:
    [fact] = facts(overview((), (("a", 1),), ("a", "b")), {"a", "b"})
    assert (fact.words, [name for name, _ in fact.agents]) == ("3 wait for their callers", ["a", "b"])


def test_many_agents_are_not_all_named() -> None:
    [fact] = facts(overview(tuple("abcdefgh")), {})
    assert (len(fact.agents), fact.others) == (5, 3)
