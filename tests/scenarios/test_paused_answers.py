"""An answer that its backend pauses, and that the adapter continues with another request: where that request fails, it is made
again by the rules for requests that have brought nothing, and what came before it stands.

Source: docs/state-model.md, scenarios 108 and 109.
"""

from collections.abc import Iterator

import pytest

from gateway.a2a.model import TaskState
from gateway.ports.adapter import (
    AdapterError,
    AnswerPaused,
    CallCompleted,
    CallStarted,
    ErrorClass,
    TextDelta,
    ToolResultReady,
)
from gateway.ports.conversation import Ownership
from tests.invariants import violations
from tests.scenarios.test_late_results import ends
from tests.scenarios.test_retries import SIDE_EFFECTS, fails
from tests.scenarios.test_tool_loop import call, say, told
from tests.support.core import Core, answer, error_class, query
from tests.support.scripted import G, Script, ScriptedAdapter, says

BEGUN: Script = [CallStarted(), TextDelta("one "), AnswerPaused("p1")]
REST: Script = [CallStarted(), TextDelta("two"), CallCompleted(usage={"input_tokens": 5, "output_tokens": 2})]
CALLS = "SELECT round, attempt, status, error_class FROM service_call ORDER BY id"


def broken(kind: ErrorClass) -> AdapterError:
    return AdapterError(kind, "no", usage={"input_tokens": 3, "output_tokens": 1})


def pauses(adapter: ScriptedAdapter) -> Iterator[object]:
    return (request.so_far for request in adapter.requests)


@pytest.mark.parametrize("ownership", [G, SIDE_EFFECTS], ids=["G", "G with side effects"])
async def test_a_refused_request_is_made_again_from_the_pause(core: Core, ownership: Ownership) -> None:
    limited = broken(ErrorClass.RATE_LIMITED)
    adapter = ScriptedAdapter(ownership, [*BEGUN, limited], fails(ErrorClass.UNREACHABLE), REST, says("well"))
    core.agent(adapter)
    task = await say(core, "1", streaming=True)
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "one two")
    assert list(pauses(adapter)) == [None, "p1", "p1"]
    assert query(core.path, CALLS) == [
        (0, 0, "failed", "rate-limited"),
        (0, 1, "failed", "unreachable"),
        (0, 2, "completed", None),
    ]
    assert core.waits == [0.5, 1.0]
    usage = (task.metadata or {})["usage"]["turn"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (8, 3)
    await say(core, "2", streaming=False)
    assert adapter.sent[-1] == (None, ["U 1", "A one two", "U 2"])
    assert list(pauses(adapter))[-1] is None
    assert violations(core.path) == []


async def test_each_pause_has_tries_of_its_own(core: Core) -> None:
    busy = broken(ErrorClass.RATE_LIMITED)
    again: Script = [CallStarted(), TextDelta("and "), AnswerPaused("p2"), busy]
    adapter = ScriptedAdapter(G, [busy], [busy], [*BEGUN, busy], [busy], again, [busy], REST)
    core.agent(adapter)
    task = await say(core, "1", streaming=True)
    assert answer(task) == "one and two"
    assert list(pauses(adapter)) == [None, None, None, "p1", "p1", "p2", "p2"]
    assert violations(core.path) == []


@pytest.mark.parametrize(
    ("ownership", "behind", "kind"),
    [
        (G, [TextDelta("tw")], ErrorClass.INTERRUPTED),
        (G, [TextDelta("tw")], ErrorClass.RATE_LIMITED),
        (G, [], ErrorClass.REJECTED),
        (G, [], ErrorClass.OVERFLOW),
        (G, [], ErrorClass.POLICY),
        (SIDE_EFFECTS, [], ErrorClass.INTERRUPTED),
        (SIDE_EFFECTS, [CallStarted()], ErrorClass.RATE_LIMITED),
    ],
)
async def test_what_is_not_made_again_fails_and_keeps_what_was_shown(
    core: Core, ownership: Ownership, behind: Script, kind: ErrorClass
) -> None:
    adapter = ScriptedAdapter(ownership, [*BEGUN, *behind, broken(kind)])
    core.agent(adapter)
    task = await say(core, "1", streaming=True)
    assert (task.status.state, error_class(task)) == (TaskState.FAILED, str(kind))
    assert answer(task) == "one tw" if any(isinstance(step, TextDelta) for step in behind) else "one "
    [kept] = query(core.path, "SELECT replayable FROM history_item WHERE kind = 'assistant'")
    assert kept == (0,)
    assert len(adapter.requests) == 1
    assert violations(core.path) == []


async def test_the_tools_of_the_answer_are_those_of_the_request_that_is_made_again(core: Core) -> None:
    looks: Script = [CallStarted(), call("s1", "search", handled=True), AnswerPaused("p1")]
    found: Script = [CallStarted(), ToolResultReady("s1", "found"), *REST[1:]]
    core.agent(ScriptedAdapter(G, [*looks, broken(ErrorClass.RATE_LIMITED)], found))
    task = await say(core, "1", streaming=True)
    assert answer(task) == "two"
    assert ends(told(task)) == ["requested", "succeeded"]
    assert query(core.path, "SELECT status, outcome FROM tool_call") == [("completed", '"found"')]
    assert violations(core.path) == []
