"""Tool calls as lines."""

from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from gateway.cli.talk.tool_calls import call_line, progress_line, replaced_call, tool_call

TIMES = {"startedAt": "2026-11-20T10:00:00.000Z", "endedAt": "2026-11-20T10:00:01.250Z"}


def part(kind: str, facts: Any = None, **data: Any) -> Any:
    metadata = {"adk_type": kind} | ({URI: facts} if facts is not None else {})
    return {"data": {"id": "call_1", "name": "lookup", **data}, "metadata": metadata}


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (part("function_call", args={"q": "x"}), 'tool: lookup {"q":"x"}'),
        (part("function_call", {"exposure": "names"}, args={}), "tool: lookup"),
        (part("function_call", {"exposure": "full"}, args={}), "tool: lookup {}"),
        (part("function_response", response={"result": "found"}), 'tool: lookup gave {"result":"found"}'),
        (part("function_response", TIMES, response={"result": 1}), 'tool: lookup gave {"result":1} (1.2 s)'),
        (part("function_response", {"exposure": "args"} | TIMES, response={}), "tool: lookup is done (1.2 s)"),
        (part("function_response", response={"error": {"code": "x"}}), 'tool: lookup failed: {"code":"x"}'),
        (
            part("function_response", TIMES, response={"error": {"code": "failed", "message": "no such city"}}),
            "tool: lookup failed: no such city (1.2 s)",
        ),
        (
            part("function_response", {}, response={"error": {"code": "rejected", "message": "no"}}),
            "tool: lookup rejected: no",
        ),
        (part("function_response", {}, response={"error": "odd"}), 'tool: lookup failed: "odd"'),
        (part("function_response", {"startedAt": "?", "endedAt": 3}, response={}), "tool: lookup gave {}"),
        (
            part("function_response", {"startedAt": "2026-11-20", "endedAt": TIMES["endedAt"]}, response={}),
            "tool: lookup gave {}",
        ),
        ({"data": 3, "metadata": {"type": "function_call"}}, "tool: None null"),
    ],
)
def test_a_part_is_a_line(shown: Any, line: str) -> None:
    assert call_line(shown) == line


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"phase": "awaiting-approval", "name": "lookup"}, "tool: lookup waits for a yes"),
        ({"phase": "progress", "name": "lookup", "text": "2 of 3"}, "tool: lookup ... 2 of 3"),
        ({"phase": "progress", "name": "lookup"}, None),
        ({"phase": "executing", "name": "lookup"}, None),
        ({"phase": "args-delta", "name": "lookup", "delta": "{"}, None),
        ("strange", None),
        (None, None),
    ],
)
def test_only_approval_and_progress_have_lines_between_call_and_result(facts: Any, line: str | None) -> None:
    assert progress_line(facts) == line


def test_a_result_replaces_the_line_of_progress_and_never_of_the_call() -> None:
    assert replaced_call(part("function_response", response={})) == "call_1"
    assert replaced_call(part("function_call", args={})) is None


@pytest.mark.parametrize("other", [None, {}, {"text": "x"}, {"metadata": {"type": "other"}}, {"metadata": "odd"}])
def test_other_parts_are_not_tool_calls(other: Any) -> None:
    assert tool_call(other) is None
