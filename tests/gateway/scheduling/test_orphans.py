"""Orphaned turns: found only when their processes could show that they live, and settled many threads at a time, each in
order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.a2a.model import Task, TaskState
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ledger.leases import CountTries, Heartbeat, Renew, UnfinishedTurn
from gateway.ledger.tasks import Finish, TaskRecord
from gateway.ledger.threads import Caller
from gateway.ports.adapter import TextDelta
from gateway.scheduling.leases import LeaseTimes
from gateway.scheduling.orphans import settle_all
from tests.gateway.scheduling.test_settle import LATER, failed, left_behind
from tests.scenarios.test_approvals import GATED, PAY, SAFE
from tests.scenarios.test_tool_loop import asks
from tests.support.core import Core, Gate, answer, frames, query, running_core, soon, until
from tests.support.rows import change
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

NEVER = LeaseTimes(start=0.0)
"""The start does not wait for recovery."""


def left(thread: int, turn: int) -> UnfinishedTurn:
    task = TaskRecord(f"task-{thread}-{turn}", "row", "c", "echo", TaskState.WORKING, None, 0, 0, True, 0)
    return UnfinishedTurn(f"{thread}.{turn}", f"thread-{thread}", 1, task, Caller("ada", ""), True)


async def test_threads_are_settled_concurrently_and_the_turns_of_one_in_order() -> None:
    both, ended = asyncio.Barrier(2), []

    async def settle(unfinished: UnfinishedTurn) -> None:
        await both.wait()
        ended.append(unfinished.turn)

    await soon(settle_all([left(1, 1), left(1, 2), left(2, 1), left(2, 2)], settle))
    assert sorted(ended[:2]) == ["1.1", "2.1"]
    assert sorted(ended[2:]) == ["1.2", "2.2"]


@pytest.mark.parametrize("error", [CorruptRecord("spoilt"), KeyError("what nobody has thought of")])
async def test_a_turn_that_cannot_be_settled_stops_no_other(error: Exception) -> None:
    ended = []

    async def settle(unfinished: UnfinishedTurn) -> None:
        if unfinished.turn == "1.1":
            raise error
        ended.append(unfinished.turn)

    await settle_all([left(1, 1), left(1, 2), left(2, 1)], settle)
    assert sorted(ended) == ["1.2", "2.1"]


async def test_a_ledger_that_is_away_leaves_the_rest_for_later() -> None:
    tried = []

    async def settle(unfinished: UnfinishedTurn) -> None:
        tried.append(unfinished.turn)
        raise LedgerUnavailable("the disk is gone")

    with pytest.raises(LedgerUnavailable):
        await settle_all([left(thread, 1) for thread in range(1000)], settle)
    assert len(tried) < 1000


async def test_without_orphans_nothing_is_settled() -> None:
    async def settle(_: UnfinishedTurn) -> None:
        raise AssertionError

    await settle_all([], settle)


# --- the start does not wait for recovery, and no lease is lost meanwhile


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


async def test_a_turn_that_is_paused_during_a_scan_for_orphans_stays_paused(tmp_path: Path) -> None:
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
    assert change(path, "UPDATE task SET status_message = 'no JSON' WHERE id = ?", task) == 1
    async with running_core(path, prefix="two", now=LATER) as core:
        core.agent(ScriptedAdapter(BR))
        assert failed(await core.get(task))


OFTEN = LeaseTimes(5.0, 500)


@asynccontextmanager
async def a_turn_on_a_locked_ledger(path: Path) -> AsyncIterator[tuple[Core, Core, Task, Pause]]:
    """One process runs a turn and has a renewal to store; the other has found the lease expired, and has something to store."""
    pause = Pause()
    async with (
        running_core(path, prefix="one", lease=OFTEN) as one,
        running_core(path, prefix="two", lease=OFTEN) as two,
    ):
        one.agent(ScriptedAdapter(G, [pause, *says("done")]))
        two.agent(ScriptedAdapter(G))
        task = await one.send("1", at_once=True)
        await soon(pause.reached.wait())
        renewal = one.ledger.hold(Renew)
        await soon(renewal.reached.wait())
        beat = two.ledger.hold(Heartbeat)
        one.time.now = two.time.now = LATER
        await soon(beat.reached.wait())
        yield one, two, task, pause
        pause.go.set()
        await soon(one.runner.idle())
        assert answer(await one.get(task.id)) == "done"
        assert two.ledger.stored(CountTries) == two.ledger.stored(Finish) == []


def lease_of(core: Core) -> int:
    [(until_,)] = query(core.path, "SELECT lease_until FROM thread")
    assert isinstance(until_, int)
    return until_


async def test_a_process_that_renews_as_soon_as_the_ledger_is_free_is_left_alone(tmp_path: Path) -> None:
    async with a_turn_on_a_locked_ledger(tmp_path / "ledger.db") as (one, two, _, _):
        one.ledger.let_go()
        await until(lambda: lease_of(one) > LATER)
        looked = two.ledger.slow_read("unfinished_turns")
        two.ledger.let_go()
        await soon(looked.reached.wait())
        looked.go.set()
        again = two.ledger.slow_read("unfinished_turns")
        await soon(again.reached.wait())
        again.go.set()


async def test_after_a_slow_commit_no_process_is_taken_for_dead_in_that_round(tmp_path: Path) -> None:
    async with a_turn_on_a_locked_ledger(tmp_path / "ledger.db") as (one, two, _, _):
        two.time.monotonic += 4
        two.ledger.let_go()
        next_round = two.ledger.hold(Heartbeat)
        await soon(next_round.reached.wait())
        assert two.ledger.stored(CountTries) == []
        one.ledger.let_go()
        await until(lambda: lease_of(one) > LATER)
        two.ledger.let_go()


async def test_a_process_that_could_renew_and_did_not_is_taken_for_dead(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(G, [pause]))
        task = await one.send("1", at_once=True)
        await soon(pause.reached.wait())
    async with running_core(path, prefix="two", now=LATER) as two:
        two.agent(ScriptedAdapter(G))
        assert (await two.get(task.id)).status.state is TaskState.FAILED
        assert len(two.ledger.stored(Heartbeat)) == 1
        assert two.waits == [0.2]


@pytest.mark.parametrize(("took", "chance"), [(0.02, 0.6), (1.0, 5.0 / 3)])
async def test_the_slower_the_ledger_the_longer_is_the_wait_for_signs_of_life(
    tmp_path: Path, took: float, chance: float
) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(G, [pause]))
        task = await one.send("1", at_once=True)
        await soon(pause.reached.wait())
    held: list[Gate] = []
    async with running_core(
        path, prefix="two", now=LATER, lease=NEVER, before=lambda ledger: held.append(ledger.hold(Heartbeat))
    ) as two:
        two.agent(ScriptedAdapter(G))
        await soon(held[0].reached.wait())
        two.time.monotonic += took
        watching = await two.subscribe(task.id)
        two.ledger.let_go()
        await frames(watching)
        assert list(two.waits) == [pytest.approx(chance)]


async def test_a_clock_set_during_the_wait_for_signs_of_life_takes_no_process_for_dead(tmp_path: Path) -> None:
    async with a_turn_on_a_locked_ledger(tmp_path / "ledger.db") as (one, two, _, _):
        one.ledger.let_go()
        await until(lambda: lease_of(one) > LATER)
        two.time.now = one.time.now = LATER + 60_000
        looked = two.ledger.slow_read("unfinished_turns")
        two.ledger.let_go()
        await soon(looked.reached.wait())
        one.ledger.hold(Renew)
        looked.go.set()
        again = two.ledger.slow_read("unfinished_turns")
        await soon(again.reached.wait())
        assert two.ledger.stored(CountTries) == []
        one.ledger.let_go()
        await until(lambda: lease_of(one) > LATER + 60_000)
        again.go.set()


async def test_without_orphans_nothing_is_written(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=OFTEN) as core:
        looked = core.ledger.slow_read("unfinished_turns")
        await soon(looked.reached.wait())
        looked.go.set()
        again = core.ledger.slow_read("unfinished_turns")
        await soon(again.reached.wait())
        assert core.ledger.units == []
        again.go.set()
