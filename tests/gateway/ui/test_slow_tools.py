"""The tools of an agent that are slow now."""

from gateway.core.diagnosis.tool_times import usual_times
from gateway.ledger.admin.upkeep import OpenToolFacts, Overview
from gateway.ledger.backlog import Backlog
from gateway.ledger.states import ToolCallStatus
from gateway.ui.agents import slow_tools

NOW = 1_000_000


def call(agent: str, name: str, task: str, took: int) -> OpenToolFacts:
    began = NOW - took
    return OpenToolFacts(f"of-{task}", "u", task, "c", agent, name, "gateway", ToolCallStatus.RUNNING, began, began)


def test_a_slow_tool_leads_to_the_oldest_of_its_calls() -> None:
    calls = (
        call("a", "search", "younger", 40_000),
        call("a", "search", "older", 50_000),
        call("a", "add", "quick", 5),
        call("b", "book", "other", 40_000),
    )
    overview = Overview(NOW, (), (), (), calls, (), (), (), (), (), (), Backlog(0, 0, 0, 0, 0), ())
    assert slow_tools(overview, usual_times(overview.tool_times), "a") == {"search": "/ui/tasks/older#turn-u"}
