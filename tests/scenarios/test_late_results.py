"""The result of a tool that the backend runs itself, and that it reports with a later service call of the same turn: it is told
and stored as the outcome of its call, once, whatever happens between the two.
"""

from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import TaskState
from gateway.core.tools.tool_call import OUTCOME_UNKNOWN
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta, ToolResultReady
from gateway.ports.conversation import Ownership
from tests.invariants import violations
from tests.scenarios.test_approvals import GATED, one, reply, start, yes
from tests.scenarios.test_tool_loop import ALL, adapter_of, asks, call, say, told
from tests.support.core import START, Core, answer, query, running_core, soon
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, G, Pause, Script, says
from tests.support.scripted_tools import ScriptedTools

SEARCH, ADD, PAY = call("s1", "search", handled=True), call("c1", "add"), call("c2", "pay")
FOUND = ToolResultReady("s1", "found")
DONE: Script = [FOUND, *says("done", "r2")]
OUTCOMES = "SELECT name, executor, status, outcome FROM tool_call ORDER BY id"
KNOWN: Any = [("search", "backend", "completed", '"found"'), ("add", "gateway", "completed", '"3"')]
UNKNOWN: Any = [("search", "backend", "external", "null"), ("add", "gateway", "completed", '"3"')]


def tools(answer_: Any = "3") -> ScriptedTools:
    return ScriptedTools({"add": answer_, "pay": "paid"})


def ends(told_: list[tuple[str, str]], name: str = "search") -> list[str]:
    return [phase for tool, phase in told_ if tool == name]


# --- results that do not come


@ALL
async def test_a_result_that_never_comes_is_told_as_unknown_when_the_turn_ends(
    core: Core, ownership: Ownership
) -> None:
    core.agent(adapter_of(ownership, asks("r1", SEARCH, ADD), says("done", "r2")), toolset=tools())
    task = await say(core, "1", streaming=True)
    assert ends(told(task)) == ["requested", "interrupted"]
    assert query(core.path, OUTCOMES) == UNKNOWN
    assert violations(core.path) == []


@ALL
async def test_a_result_that_came_with_a_call_that_failed_was_told_and_does_not_count(
    core: Core, ownership: Ownership
) -> None:
    cut: Script = [FOUND, TextDelta("so"), AdapterError(ErrorClass.BACKEND_FAILED, "gone")]
    core.agent(adapter_of(ownership, asks("r1", SEARCH, ADD), cut), toolset=tools())
    task = await say(core, "1", streaming=True)
    assert task.status.state is TaskState.FAILED
    assert ends(told(task)) == ["requested", "succeeded"]
    assert query(core.path, OUTCOMES) == UNKNOWN
    assert violations(core.path) == []


async def test_a_second_result_of_the_same_call_breaks_the_contract(core: Core) -> None:
    core.agent(adapter_of(G, asks("r1", SEARCH, ADD), [FOUND, *DONE]), toolset=tools())
    task = await say(core, "1", streaming=False)
    assert task.status.state is TaskState.FAILED
    assert ends(told(task)) == ["requested", "succeeded"]


async def test_a_result_that_comes_in_another_turn_belongs_to_no_call(core: Core) -> None:
    adapter = adapter_of(G, asks("r1", SEARCH, ADD), says("done", "r2"), DONE)
    core.agent(adapter, toolset=tools())
    await say(core, "1", streaming=False)
    task = await say(core, "2", streaming=False)
    assert (task.status.state, told(task)) == (TaskState.COMPLETED, [])
    assert query(core.path, OUTCOMES) == UNKNOWN


# --- results that come


@ALL
@pytest.mark.parametrize("error", [False, True])
async def test_68b_a_result_with_a_later_call_is_that_of_its_call(
    core: Core, ownership: Ownership, error: bool
) -> None:
    found = ToolResultReady("s1", "found", error)
    adapter = adapter_of(ownership, asks("r1", SEARCH, ADD), [found, *says("done", "r2")], says("well", "r3"))
    core.agent(adapter, toolset=tools())
    task = await say(core, "1", streaming=True)
    assert answer(task) == "done"
    assert ends(told(task)) == ["requested", "failed" if error else "succeeded"]
    assert query(core.path, OUTCOMES)[0] == ("search", "backend", "failed" if error else "completed", '"found"')
    await say(core, "2", streaming=False)
    if ownership is G:
        round_ = ["U 1", "C s1 search", "C c1 add", "O s1 found", "O c1 3"]
        assert adapter.sent[2] == (None, [*round_, "A done", "U 2"])
    else:
        assert [items for _, items in adapter.sent[1:]] == [["O c1 3"], ["U 2"]]
    assert violations(core.path) == []


async def test_a_result_may_come_some_rounds_later(core: Core) -> None:
    again = asks("r2", call("c2", "add"))
    core.agent(adapter_of(G, asks("r1", SEARCH, ADD), again, DONE), toolset=tools())
    task = await say(core, "1", streaming=True)
    assert ends(told(task)) == ["requested", "succeeded"]
    assert query(core.path, OUTCOMES)[:2] == KNOWN
    assert violations(core.path) == []


async def test_a_result_that_is_told_again_is_told_once(core: Core) -> None:
    begun: Script = [CallStarted("r2"), FOUND, TextDelta("do")]
    cut = AdapterError(ErrorClass.INTERRUPTED, "cut")
    whole: Script = [CallStarted("r2"), *DONE]
    adapter = ResumingAdapter([CallStarted("r1"), *asks("r1", SEARCH, ADD)], [*begun, cut], again=[whole])
    core.agent(adapter, toolset=tools())
    task = await say(core, "1", streaming=True)
    assert answer(task) == "done"
    assert ends(told(task)) == ["requested", "succeeded"]
    assert query(core.path, OUTCOMES) == KNOWN
    assert violations(core.path) == []


async def test_a_result_comes_to_its_call_when_the_turn_has_waited_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="a") as first:
        first.agent(adapter_of(BR, asks("r1", SEARCH, ADD), asks("r2", PAY)), toolset=tools(), approvals=GATED)
        task = await start(first)
        await first.die()
    async with running_core(path, prefix="b", now=START + 60_000) as second:
        second.agent(adapter_of(BR, [FOUND, *says("done", "r3")]), toolset=tools(), approvals=GATED)
        done = await reply(second, task.id, yes(one(task)))
        assert (done.status.state, ends(told(done))) == (TaskState.COMPLETED, ["requested", "succeeded"])
        assert query(path, OUTCOMES)[:2] == KNOWN
        assert violations(path) == []


async def test_a_call_whose_result_is_awaited_ends_with_a_turn_that_waits_in_vain(core: Core) -> None:
    core.agent(adapter_of(BR, asks("r1", SEARCH, PAY)), toolset=tools(), approvals=GATED)
    task = await start(core)
    assert ends(told(task)) == ["requested"]
    done = await core.cancel(task.id)
    assert ends(told(done)) == ["requested", "interrupted"]
    assert OUTCOME_UNKNOWN in str(done.history)
    assert violations(core.path) == []


async def test_a_result_comes_to_its_call_when_another_process_makes_the_later_call(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="a") as first:
        first.agent(adapter_of(G, asks("r1", SEARCH, ADD), [pause]), toolset=tools())
        task = await first.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
    second_adapter = adapter_of(G, [CallStarted(), FOUND, TextDelta("done"), CallCompleted()])
    async with running_core(path, prefix="b", now=START + 10**7, adapter=second_adapter) as second:
        await soon(second.runner.idle())
        done = await second.get(task.id)
        assert (done.status.state, ends(told(done))) == (TaskState.COMPLETED, ["requested", "succeeded"])
        assert query(path, OUTCOMES) == KNOWN
        assert violations(path) == []
