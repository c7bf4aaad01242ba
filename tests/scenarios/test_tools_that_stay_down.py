"""A tool that has to run, or to run again, while its source stays down: it is tried less and less often, for no longer than a
turn may take; then the outcome of one that ran is unknown. Source: docs/state-model.md, scenarios 50 and 116."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.a2a.errors import Busy
from gateway.a2a.model import TaskState
from gateway.core.failures import TOOL_OUTCOME_UNKNOWN, TOOLS_UNAVAILABLE
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.ports.conversation import Ownership
from gateway.ports.tools import ToolError
from tests.invariants import violations
from tests.scenarios.test_approvals import asked, expiry, reply, request, yes
from tests.scenarios.test_tool_loop import ALL, UNKNOWN, adapter_of, asks
from tests.scenarios.test_tools_run_again import ONE, TWO, Box, dies_while_running, successor
from tests.support.core import Core, answer, error_class, frames, query, soon, states, until
from tests.support.polling import interval
from tests.support.scripted import G, Pause, says

MINUTES_15 = 900_000


class Down(Box):
    """`listed`: so often was it asked what it has."""

    def __init__(self, answers: Any) -> None:
        super().__init__(answers)
        self.unreachable: str | None = "no route"
        self.listed = 0

    async def offered(self) -> Any:
        self.listed += 1
        if self.unreachable is not None:
            raise ToolError(self.unreachable)
        return await super().offered()


async def due(core: Core) -> None:
    while not await core.ledger.overdue_turns(core.time.now, core.time.now, 10):
        await interval()


async def tried(core: Core) -> None:
    """What is due has been looked at once, by a process that remembers nothing of it."""
    await soon(due(core))
    await expiry(core).sweep()
    await core.runner.idle()


@ALL
async def test_50_a_tool_whose_source_stays_down_has_an_unknown_outcome_when_the_turn_has_had_its_time(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    task = await dies_while_running(
        path, adapter_of(ownership, asks("r1", ONE, TWO)), Box({"one": Pause(), "two": "T"})
    )
    box, adapter = Down({"one": "O", "two": "never"}), adapter_of(ownership, says("A", "r2"))
    async with successor(path, adapter, box) as core:
        await tried(core)
        core.time.now += MINUTES_15 - 1
        await tried(core)
        assert (await core.get(task)).status.state is TaskState.WORKING
        core.time.now += 1
        await tried(core)
        left = await core.get(task)
        assert (left.status.state, error_class(left)) == (TaskState.FAILED, TOOL_OUTCOME_UNKNOWN)
        assert await core.ledger.overdue_turns(core.time.now, 0, 10) == ()
        box.unreachable = None
        await core.send("2", context="c")
    assert (box.runs, query(path, "SELECT status FROM tool_call ORDER BY sequence")) == (
        [],
        [("interrupted",), ("completed",)],
    )
    assert adapter.sent[0][1][-3:] == [f"O c1 {UNKNOWN}", "O c2 T", "U 2"]
    assert violations(path) == []


async def test_50_a_source_that_comes_back_late_is_still_in_time(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task = await dies_while_running(path, adapter_of(G, asks("r1", ONE)), Box({"one": Pause()}))
    box = Down({"one": "O"})
    async with successor(path, adapter_of(G, says("A")), box) as core:
        await tried(core)
        box.unreachable = None
        core.time.now += MINUTES_15 * 4
        await tried(core)
        done = await core.get(task)
        assert (done.status.state, answer(done), box.ran) == (TaskState.COMPLETED, "A", ["one"])
    assert violations(path) == []


async def test_50_the_time_is_the_agents_own(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task = await dies_while_running(path, adapter_of(G, asks("r1", ONE)), Box({"one": Pause()}))
    async with successor(path, adapter_of(G), Down({"one": "O"}), turn_timeout=60.0) as core:
        await tried(core)
        core.time.now += 60_000
        await tried(core)
        assert error_class(await core.get(task)) == TOOL_OUTCOME_UNKNOWN


async def test_50_a_source_that_stays_down_is_asked_less_and_less_often(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await dies_while_running(path, adapter_of(G, asks("r1", ONE)), Box({"one": Pause()}))
    box, now = Down({"one": "O"}), 1000.0
    async with successor(path, adapter_of(G), box, turn_timeout=10_000.0) as core:
        core.time.clock = msgspec.structs.replace(core.time.clock, monotonic=lambda: now)
        waits = expiry(core)
        await soon(due(core))
        asked_at: list[float] = []
        while now < 2000.0:
            before = box.listed
            await waits.sweep()
            await core.runner.idle()
            asked_at += [now - 1000.0] if box.listed > before else []
            now += 5
        assert asked_at == [0, 15, 45, 105, 225, 465, 765]


GATED: dict[str, Any] = {"approvals": (ApprovalRule("box.one"),)}


async def approved(core: Core, box: Down) -> str:
    """The task of a turn whose caller has said yes to a tool whose source has gone meanwhile."""
    box.unreachable = None
    task = await reply(core, None, "1", context_id="c")
    box.unreachable = "no route"
    await reply(core, task.id, yes(asked(task)[0]["id"]), at_once=True)
    await core.runner.idle()
    return task.id


async def test_116_a_yes_that_cannot_be_used_yet_stays_one_until_the_source_is_back(tmp_path: Path) -> None:
    path, box = tmp_path / "ledger.db", Down({"one": "O"})
    async with successor(path, adapter_of(G, asks("r1", ONE), says("A")), box, **GATED) as core:
        task = await approved(core, box)
        core.time.now += MINUTES_15 - 1
        await tried(core)
        assert (await core.get(task)).status.state is TaskState.WORKING
        box.unreachable = None
        core.time.now += MINUTES_15
        await tried(core)
        assert (answer(await core.get(task)), box.ran) == ("A", ["one"])
    assert violations(path) == []


@ALL
async def test_116_a_turn_whose_tools_stay_away_for_as_long_as_it_may_take_fails_and_runs_nothing(
    tmp_path: Path, ownership: Ownership
) -> None:
    path, box = tmp_path / "ledger.db", Down({"one": "O"})
    adapter = adapter_of(ownership, asks("r1", ONE), says("A2", "r2"))
    async with successor(path, adapter, box, **GATED) as core:
        task = await approved(core, box)
        core.time.now += MINUTES_15
        await tried(core)
        failed = await core.get(task)
        assert (failed.status.state, error_class(failed)) == (TaskState.FAILED, TOOLS_UNAVAILABLE)
        box.unreachable = None
        assert answer(await core.send("2", context="c")) == "A2"
    assert (box.ran, query(path, "SELECT status FROM tool_call")) == ([], [("cancelled",)])
    assert violations(path) == []


async def test_116_a_message_beside_a_turn_that_waits_for_its_tools_hears_that_it_is_too_early(tmp_path: Path) -> None:
    path, box = tmp_path / "ledger.db", Down({"one": "O"})
    async with successor(path, adapter_of(G, asks("r1", ONE)), box, **GATED) as core:
        task = await approved(core, box)
        with pytest.raises(Busy, match=f"{task}.* has its answer and goes on once its tools can be reached"):
            await core.send("2", context="c")


@pytest.mark.parametrize("comes_back", [True, False])
async def test_116_the_stream_of_an_answer_goes_on_until_its_turn_has_ended(tmp_path: Path, comes_back: bool) -> None:
    path, box = tmp_path / "ledger.db", Down({"one": "O"})
    async with successor(path, adapter_of(G, asks("r1", ONE), says("A")), box, **GATED) as core:
        box.unreachable = None
        task = await reply(core, None, "1", context_id="c")
        box.unreachable = "no route"
        answered = request(task.id, yes(asked(task)[0]["id"]))
        stream = await core.operations.send_streaming_message(core.call(), answered)
        await core.runner.idle()
        box.unreachable = None if comes_back else "no route"
        core.time.now += MINUTES_15
        await tried(core)
        [*_, last] = states(await soon(frames(stream)))
        assert last == ("COMPLETED" if comes_back else "FAILED")


async def test_116_who_waits_for_the_end_gets_it(tmp_path: Path) -> None:
    path, box = tmp_path / "ledger.db", Down({"one": "O"})
    async with successor(path, adapter_of(G, asks("r1", ONE), says("A")), box, **GATED) as core:
        box.unreachable = None
        task = await reply(core, None, "1", context_id="c")
        box.unreachable = "no route"
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(reply(core, task.id, yes(asked(task)[0]["id"])))
            await soon(due(core))
            await core.runner.idle()
            box.unreachable = None
            core.time.now += MINUTES_15
            await tried(core)
        assert answer(answering.result()) == "A"


async def test_50_meanwhile_its_caller_can_cancel_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task = await dies_while_running(path, adapter_of(G, asks("r1", ONE)), Box({"one": Pause()}))
    async with successor(path, adapter_of(G), Down({"one": "O"})) as core:
        await tried(core)
        assert (await core.cancel(task)).status.state is TaskState.CANCELED
    assert violations(path) == []


async def test_113_who_repeats_an_answer_at_another_process_gets_the_end_of_its_turn(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    box = Box({"one": pause})
    async with successor(path, adapter_of(G, asks("r1", ONE), says("A")), box, **GATED) as core:
        task = await reply(core, None, "1", context_id="c")
        decision = yes(asked(task)[0]["id"])
        await reply(core, task.id, decision, at_once=True)
        await soon(pause.reached.wait())
        async with successor(path, adapter_of(G), box, 3, **GATED) as other, asyncio.TaskGroup() as group:
            repeated = group.create_task(reply(other, task.id, decision))
            await until(lambda: repeated.done() or other.fanout.streams == 1)
            pause.go.set()
        assert answer(repeated.result()) == "A"
