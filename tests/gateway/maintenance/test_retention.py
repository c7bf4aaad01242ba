"""Sweeps: what they examine, the size of their commits, and failures that do not stop them. Effects: tests/scenarios."""

import asyncio
from pathlib import Path

import pytest

from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.retention import ExpireContext, ExpireTasks, PurgeContext
from gateway.maintenance.retention import Lifetimes
from tests.support.core import Core, query, running_core, soon, until
from tests.support.deletions import DAY, retention
from tests.support.push_harness import PushHarness
from tests.support.scripted import G, ScriptedAdapter, says


def anything(core: Core, name: str = "echo") -> None:
    core.agent(ScriptedAdapter(G, otherwise=lambda _: says("a")), name)


async def test_a_sweep_with_nothing_due_writes_nothing(core: Core) -> None:
    anything(core)
    await core.send("1")
    stored = len(core.ledger.units)
    await retention(core).sweep()
    assert len(core.ledger.units) == stored


async def test_the_tasks_of_every_caller_and_agent_are_found(core: Core) -> None:
    for name in ("one", "two"):
        anything(core, name)
        for principal in ("ada", "bob"):
            await core.send("1", core.call(principal))
    core.time.now += 31 * DAY
    await retention(core).sweep()
    assert query(core.path, "SELECT sum(visible), count(*) FROM task") == [(0, 4)]


async def test_many_tasks_go_in_several_commits(core: Core) -> None:
    anything(core)
    for _ in range(120):
        await core.send("1", context="c")
    core.time.now += 31 * DAY
    await retention(core).sweep()
    pieces = [len(point.tasks) for point in core.ledger.stored(ExpireTasks)]
    assert (sum(pieces), max(pieces)) == (120, 50)


async def test_the_events_of_a_task_are_searched_for_once(core: Core) -> None:
    anything(core)
    sweeper = retention(core)
    await core.send("1")
    core.time.now += 8 * DAY
    await core.send("2")
    await sweeper.sweep()
    core.time.now += 8 * DAY
    await sweeper.sweep()
    await sweeper.sweep()
    assert [len(point.tasks) for point in core.ledger.stored(ExpireTasks)] == [1, 1]


async def test_overdue_events_that_had_to_be_posted_first_are_deleted_within_a_day(core: Core) -> None:
    anything(core)
    push = PushHarness(core)
    await push.send("1")
    sweeper = retention(core)
    core.time.now += 8 * DAY
    await sweeper.sweep()
    assert await push.deliver() == 1
    for _ in range(24):
        core.time.now += DAY // 24
        await sweeper.sweep()
    assert query(core.path, "SELECT count(*) FROM event") == [(0,)]


async def test_other_lifetimes_count_from_the_next_sweep(core: Core) -> None:
    anything(core)
    sweeper = retention(core)
    await core.send("1")
    core.time.now += 2 * DAY
    await sweeper.sweep()
    sweeper.lifetimes = Lifetimes(events=86400, tasks=86400, contexts_idle=86400)
    await sweeper.sweep()
    assert query(core.path, "SELECT state FROM context") == [("expired",)]


async def test_a_context_that_cannot_be_purged_does_not_stop_the_others(core: Core) -> None:
    anything(core)
    for context in "ab":
        await core.send("1", context=context)
    core.time.now += 91 * DAY
    core.ledger.refuse(PurgeContext, error=Conflict("a row refers to it"))
    await retention(core).sweep()
    assert query(core.path, "SELECT state FROM context") == [("expired",)] * 2
    assert query(core.path, "SELECT count(*) FROM turn") == [(1,)]
    await retention(core).sweep()
    assert query(core.path, "SELECT count(*) FROM turn") == [(0,)]


@pytest.mark.parametrize("fault", [LedgerUnavailable("the disk is full"), RuntimeError("a fault of ours")])
async def test_a_failing_sweep_does_not_end_retention(core: Core, fault: Exception) -> None:
    anything(core)
    core.ledger.fail_reads("next_owner", error=fault)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(retention(core).run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not working.done()
        working.cancel()


async def test_retention_begins_with_a_sweep(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db") as core:
        anything(core)
        await core.send("1", context="c")
        core.time.now += 91 * DAY
        async with asyncio.TaskGroup() as group:
            working = group.create_task(retention(core).run())
            await soon(until(lambda: core.ledger.stored(ExpireContext)))
            working.cancel()
