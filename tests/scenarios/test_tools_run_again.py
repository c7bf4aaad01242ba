"""Tools that are declared idempotent: a call that ran when its process died runs again with the same key, and the turn
continues as if nothing had happened; any other call does not. Source: docs/state-model.md, scenario 50."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import TaskState
from gateway.a2a.tool_calls import Visibility
from gateway.core.failures import TOOL_OUTCOME_UNKNOWN
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.tool_call import RUNS
from gateway.ledger.leases import TRIES
from gateway.ledger.tool_calls import ToolEnds
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.scenarios.test_approvals import CAMERA, asked, expiry, reply, yes
from tests.scenarios.test_background import told_of_calls
from tests.scenarios.test_tool_loop import ALL, UNKNOWN, adapter_of, asks, call
from tests.support.core import START, Core, answer, error_class, query, running_core, soon
from tests.support.polling import interval
from tests.support.rows import change
from tests.support.scripted import G, Pause, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

QUICK = LeaseTimes(0.05)
ONE, TWO = call("c1", "one"), call("c2", "two")


class Box(ScriptedTools):
    """Tools of which `repeatable` are idempotent."""

    def __init__(self, answers: Any, repeatable: tuple[str, ...] = ("one",)) -> None:
        super().__init__(answers)
        self.repeatable = repeatable

    async def offered(self) -> Any:
        found = {}
        for name in self._answers:
            self.idempotent = name in self.repeatable
            found[name] = self._offer(name)
        return found


async def dies_while_running(path: Path, adapter: ScriptedAdapter, box: ScriptedTools, **policies: Any) -> str:
    """The task of a process that died while tool `one` ran; every other tool of the round has ended."""
    pause = box._answers["one"]
    assert isinstance(pause, Pause)
    async with running_core(path, prefix="one") as core:
        core.agent(adapter, toolset=box, **policies)
        task = await core.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        await soon(settled_but_one(core))
    return task.id


async def settled_but_one(core: Core) -> None:
    """One call runs, and none has still to begin."""
    begins = "status = 'announced' AND executor = 'gateway'"
    count = f"SELECT count(*) FILTER (WHERE status = 'running'), count(*) FILTER (WHERE {begins}) FROM tool_call"
    while query(core.path, count) != [(1, 0)]:
        await interval()


@asynccontextmanager
async def successor(
    path: Path, adapter: ScriptedAdapter, box: ScriptedTools | None, number: int = 2, **policies: Any
) -> AsyncIterator[Core]:
    """The process that finds it, once its lease has run out."""
    async with running_core(path, prefix=f"p{number}", lease=QUICK) as core:
        core.agent(adapter, toolset=box, **policies)
        core.time.now = START + number * 10**5
        yield core


async def until_due(core: Core, task: str) -> None:
    """What is left has been looked at, and what is due has been taken up, until the task has ended."""
    async with asyncio.timeout(30):
        while (await core.get(task)).status.state is TaskState.WORKING:
            await expiry(core).sweep()
            await core.runner.idle()
            await interval()


@ALL
async def test_50_an_idempotent_tool_that_ran_in_a_crash_is_run_again_with_the_same_key(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    first = Box({"one": Pause(), "two": "T"})
    task = await dies_while_running(path, adapter_of(ownership, asks("r1", ONE, TWO)), first)
    again = Box({"one": "O", "two": "never"})
    adapter = adapter_of(ownership, says("done", "r2"))
    async with successor(path, adapter, again) as core:
        await until_due(core, task)
        done = await core.get(task)
        assert (done.status.state, answer(done)) == (TaskState.COMPLETED, "done")
    assert [run.name for run in again.runs] == ["one"]
    assert again.runs[0].key == next(run.key for run in first.runs if run.name == "one")
    assert query(path, "SELECT name, status, runs_left FROM tool_call ORDER BY sequence") == [
        ("one", "completed", RUNS - 2),
        ("two", "completed", 0),
    ]
    assert adapter.sent[0][1][-2:] == ["O c1 O", "O c2 T"]
    assert violations(path) == []


@ALL
async def test_50_beside_a_tool_that_is_not_idempotent_nothing_is_run_again(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    two = Pause()
    first = Box({"one": Pause(), "two": two})
    async with running_core(path, prefix="one") as one:
        one.agent(adapter_of(ownership, asks("r1", ONE, TWO)), toolset=first)
        task = await one.send("1", context="c", at_once=True)
        await soon(two.reached.wait())
    again = Box({"one": "O", "two": "T"})
    async with successor(path, adapter_of(ownership, says("A", "r2")), again) as core:
        await until_due(core, task.id)
        left = await core.get(task.id)
        assert (left.status.state, error_class(left)) == (TaskState.FAILED, TOOL_OUTCOME_UNKNOWN)
    assert (again.runs, query(path, "SELECT status FROM tool_call")) == ([], [("interrupted",), ("interrupted",)])
    assert violations(path) == []


async def test_50_a_tool_that_ends_its_process_every_time_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task = await dies_while_running(path, adapter_of(G, asks("r1", ONE)), Box({"one": Pause()}))
    for number in range(2, RUNS + 1):
        pause = Pause()
        async with successor(path, adapter_of(G), Box({"one": pause}), number) as core:
            while not await core.ledger.overdue_turns(core.time.now, 0, 10):
                await soon(interval())
            await expiry(core).sweep()
            await soon(pause.reached.wait())
            assert query(path, "SELECT runs_left FROM tool_call") == [(RUNS - number,)]
    box = Box({"one": "O"})
    async with successor(path, adapter_of(G, says("A")), box, RUNS + 1) as core:
        await until_due(core, task)
        left = await core.get(task)
        assert (left.status.state, error_class(left), box.runs) == (TaskState.FAILED, TOOL_OUTCOME_UNKNOWN, [])
    assert violations(path) == []


async def test_50_a_yes_is_for_one_run_also_of_an_idempotent_tool(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    pause = Pause()
    rules = (ApprovalRule("box.one"),)
    async with running_core(path, prefix="one") as one:
        one.agent(adapter_of(G, asks("r1", ONE)), toolset=Box({"one": pause}), approvals=rules)
        task = await reply(one, None, "1", context_id="c")
        await reply(one, task.id, yes(asked(task)[0]["id"]), at_once=True)
        await soon(pause.reached.wait())
    box = Box({"one": "O"})
    async with successor(path, adapter_of(G, says("A")), box, approvals=rules) as core:
        await until_due(core, task.id)
        assert error_class(await core.get(task.id)) == TOOL_OUTCOME_UNKNOWN
    assert box.runs == []


@pytest.mark.parametrize("box", [Box({"one": "O"}, ()), Box({"other": "O"}), None], ids=["unsafe", "gone", "no tools"])
async def test_50_a_tool_that_is_not_idempotent_any_more_is_not_run_again(
    tmp_path: Path, box: ScriptedTools | None
) -> None:
    path = tmp_path / "ledger.db"
    task = await dies_while_running(path, adapter_of(G, asks("r1", ONE)), Box({"one": Pause()}))
    adapter = adapter_of(G, says("A"))
    async with successor(path, adapter, box) as core:
        await until_due(core, task)
        left = await core.get(task)
        assert (left.status.state, error_class(left)) == (TaskState.FAILED, TOOL_OUTCOME_UNKNOWN)
        await core.send("2", context="c")
    assert query(path, "SELECT status FROM tool_call") == [("interrupted",)]
    assert adapter.sent[0][1][-2:] == [f"O c1 {UNKNOWN}", "U 2"]
    assert violations(path) == []


async def test_50_a_round_in_which_somebody_has_still_to_be_asked_is_not_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    rules = (ApprovalRule("box.two"),)
    first = Box({"one": Pause(), "two": "T"})
    task = await dies_while_running(path, adapter_of(G, asks("r1", ONE, TWO)), first, approvals=rules)
    box = Box({"one": "O", "two": "T"})
    async with successor(path, adapter_of(G, says("A")), box, approvals=rules) as core:
        await until_due(core, task)
        assert error_class(await core.get(task)) == TOOL_OUTCOME_UNKNOWN
    assert box.runs == []
    assert violations(path) == []


async def test_50_an_idempotent_outcome_that_could_not_be_stored_is_brought_about_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, lease=QUICK) as core:
        box = Box({"one": "O"})
        core.agent(adapter_of(G, asks("r1", ONE), says("done")), toolset=box)
        core.ledger.refuse(ToolEnds)
        task = await core.send("1", context="c", at_once=True)
        await until_due(core, task.id)
        assert (await core.get(task.id)).status.state is TaskState.COMPLETED
        assert [run.key for run in box.runs] == [box.runs[0].key] * 2
    assert violations(path) == []


async def test_137_cancelling_a_task_whose_tool_is_to_run_again_tells_that_its_outcome_is_unknown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    task = await dies_while_running(path, adapter_of(G, asks("r1", ONE)), Box({"one": Pause()}))
    box = Box({"one": "O"})
    async with successor(path, adapter_of(G, says("A")), box) as core:
        while not await core.ledger.overdue_turns(core.time.now, 0, 10):
            await soon(interval())
        assert (await core.cancel(task)).status.state is TaskState.CANCELED
        await expiry(core).sweep()
    assert (box.runs, query(path, "SELECT status FROM tool_call")) == ([], [("interrupted",)])
    assert violations(path) == []


# --- a call of the client's, of which callers hear when the turn asks for its result


BESIDE = (call("c2", "camera", '{"n":1}'), ONE)
CHANNELS = pytest.mark.parametrize("channel", ["status", "artifact"])


@CHANNELS
@ALL
async def test_50_a_call_of_the_clients_beside_a_tool_that_ran_in_a_crash_is_shown_before_its_outcome(
    tmp_path: Path, ownership: Ownership, channel: Any
) -> None:
    path = tmp_path / "ledger.db"
    policies: dict[str, Any] = {"client_tools": (CAMERA,), "tool_calls": Visibility(channel=channel)}
    adapter = adapter_of(ownership, asks("r1", *BESIDE))
    task = await dies_while_running(path, adapter, Box({"one": Pause()}, ()), **policies)
    async with successor(path, adapter_of(ownership), None, **policies) as core:
        await until_due(core, task)
        assert error_class(await core.get(task)) == TOOL_OUTCOME_UNKNOWN
    assert told_of_calls(path, task) == ["requested 0", "requested 1", "cancelled 1", "interrupted 0"]
    assert violations(path) == []


async def test_50_a_call_of_the_clients_is_shown_on_the_channel_of_the_calls_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    adapter = adapter_of(G, asks("r1", *BESIDE))
    first: dict[str, Any] = {"client_tools": (CAMERA,), "tool_calls": Visibility(channel="artifact")}
    task = await dies_while_running(path, adapter, Box({"one": Pause()}, ()), **first)
    async with successor(path, adapter_of(G), None, client_tools=(CAMERA,)) as core:
        await until_due(core, task)
        shown = (await core.get(task)).artifacts or ()
    assert sorted(artifact.artifact_id.split(":")[0] for artifact in shown) == ["tool-call"] * 2 + ["tool-result"] * 2
    assert violations(path) == []


async def test_50_a_call_of_the_clients_is_not_shown_to_a_caller_that_sees_no_calls(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    policies: dict[str, Any] = {"client_tools": (CAMERA,), "tool_calls": Visibility(exposure="none")}
    adapter = adapter_of(G, asks("r1", *BESIDE))
    task = await dies_while_running(path, adapter, Box({"one": Pause()}, ()), **policies)
    async with successor(path, adapter_of(G), None, **policies) as core:
        await until_due(core, task)
    assert told_of_calls(path, task) == []
    assert violations(path) == []


async def test_50_a_turn_that_could_not_be_ended_otherwise_shows_each_call_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    adapter = adapter_of(G, asks("r1", *BESIDE))
    task = await dies_while_running(path, adapter, Box({"one": Pause()}, ()), client_tools=(CAMERA,))
    change(path, "UPDATE turn SET tries = ?", TRIES - 1)
    async with successor(path, adapter_of(G), None, client_tools=(CAMERA,)) as core:
        await until_due(core, task)
    assert told_of_calls(path, task) == ["requested 0", "requested 1", "cancelled 1", "interrupted 0"]
