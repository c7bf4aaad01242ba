"""What dead processes left: many threads at a time, each in order, and nobody who cannot be ended holds up the others."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.a2a.model import TaskState
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ledger.leases import Renew, UnfinishedTurn
from gateway.ledger.tasks import Finish, TaskRecord
from gateway.ledger.threads import Caller
from gateway.ports.adapter import TextDelta
from gateway.scheduling.leases import LeaseTimes
from gateway.scheduling.orphans import settle_all
from tests.gateway.scheduling.test_recovery import LATER, failed, left_behind
from tests.scenarios.test_approvals import GATED, PAY, SAFE
from tests.scenarios.test_tool_loop import asks
from tests.support.core import answer, running_core, soon
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

NEVER = LeaseTimes(start=0.0)
"""The start waits for nobody to be ended."""


def left(thread: int, turn: int) -> UnfinishedTurn:
    task = TaskRecord(f"task-{thread}-{turn}", "row", "c", "echo", TaskState.WORKING, None, 0, 0, True)
    return UnfinishedTurn(f"{thread}.{turn}", f"thread-{thread}", 1, task, Caller("ada", ""), True)


async def test_threads_are_settled_beside_each_other_and_the_turns_of_one_in_order() -> None:
    both, ended = asyncio.Barrier(2), []

    async def settle(leftover: UnfinishedTurn) -> None:
        await both.wait()
        ended.append(leftover.turn)

    await soon(settle_all([left(1, 1), left(1, 2), left(2, 1), left(2, 2)], settle))
    assert sorted(ended[:2]) == ["1.1", "2.1"]
    assert sorted(ended[2:]) == ["1.2", "2.2"]


@pytest.mark.parametrize("error", [CorruptRecord("spoilt"), KeyError("what nobody has thought of")])
async def test_a_turn_that_cannot_be_settled_stops_no_other(error: Exception) -> None:
    ended = []

    async def settle(leftover: UnfinishedTurn) -> None:
        if leftover.turn == "1.1":
            raise error
        ended.append(leftover.turn)

    await settle_all([left(1, 1), left(1, 2), left(2, 1)], settle)
    assert sorted(ended) == ["1.2", "2.1"]


async def test_a_ledger_that_is_away_leaves_the_rest_for_later() -> None:
    tried = []

    async def settle(leftover: UnfinishedTurn) -> None:
        tried.append(leftover.turn)
        raise LedgerUnavailable("the disk is gone")

    with pytest.raises(LedgerUnavailable):
        await settle_all([left(thread, 1) for thread in range(1000)], settle)
    assert len(tried) < 1000


async def test_nothing_is_left() -> None:
    async def settle(_: UnfinishedTurn) -> None:
        raise AssertionError

    await settle_all([], settle)


# --- the start does not wait for it, and nobody loses a lease meanwhile ---


async def test_the_start_does_not_wait_until_the_last_turn_has_been_settled(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task = await left_behind(path, BR, TextDelta("a"))
    held: list[Pause] = []
    async with running_core(
        path, prefix="two", now=LATER, lease=NEVER, before=lambda ledger: held.append(ledger.slow_read("turns"))
    ) as core:
        core.agent(ScriptedAdapter(BR, says("fine")))
        await soon(held[0].reached.wait())
        assert answer(await core.send("hello", context="elsewhere")) == "fine"
        watching = await core.subscribe(task)
        held[0].go.set()
        async for _ in watching:
            pass
        assert failed(await core.get(task))


async def test_leases_are_kept_while_turns_are_settled(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    await left_behind(path, BR, TextDelta("a"))
    held: list[Pause] = []
    async with running_core(
        path,
        prefix="two",
        now=LATER,
        lease=LeaseTimes(0.03, start=0.0),
        before=lambda ledger: held.append(ledger.slow_read("turns")),
    ) as core:
        core.agent(ScriptedAdapter(G, [pause]))
        await soon(held[0].reached.wait())
        await core.send("hello", context="elsewhere", at_once=True)
        kept = core.ledger.hold(Renew)
        await soon(kept.reached.wait())
        core.ledger.let_go()
        assert core.ledger.stored(Finish) == []
        held[0].go.set()


async def test_a_turn_that_comes_to_wait_while_it_is_looked_for_what_was_left_waits_on(tmp_path: Path) -> None:
    pause = Pause()
    async with running_core(tmp_path / "ledger.db", lease=LeaseTimes(0.03)) as core:
        tools = ScriptedTools({"look": pause, "pay": "paid"})
        core.agent(ScriptedAdapter(G, asks("r1", SAFE, PAY)), toolset=tools, approvals=GATED)
        task = await core.send("1", at_once=True)
        await soon(pause.reached.wait())
        looked = core.ledger.slow_read("unfinished_turns")
        await soon(looked.reached.wait())
        pause.go.set()
        await soon(core.runner.idle())
        again = core.ledger.slow_read("unfinished_turns")
        looked.go.set()
        await soon(again.reached.wait())
        again.go.set()
        assert (await core.get(task.id)).status.state is TaskState.INPUT_REQUIRED
        assert core.ledger.stored(Finish) == []


async def test_a_status_that_cannot_be_read_stops_neither_the_start_nor_the_end_of_its_task(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task = await left_behind(path, BR, TextDelta("a"))
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute("UPDATE task SET status_message = 'no JSON' WHERE id = ?", (task,)).rowcount == 1
    async with running_core(path, prefix="two", now=LATER) as core:
        core.agent(ScriptedAdapter(BR))
        assert failed(await core.get(task))
