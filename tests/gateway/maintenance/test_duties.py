"""What one process does for all on a ledger: who does it, and that nothing is lost when that process goes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core.agents import Agents
from gateway.ledger.duties import LeaveDuty, TakeDuty
from gateway.ledger.errors import Conflict
from gateway.ledger.retention import ExpireTasks, MoveDeletion
from gateway.maintenance.duties import Duties
from gateway.maintenance.expiry import QuestionExpiry
from gateway.operations.paused_turns import PausedTurns
from tests.support.core import START, Core, query, running_core, soon
from tests.support.deletions import DAY, DeletingAdapter, deletions, retention
from tests.support.rows import change
from tests.support.scripted import BR, G, ScriptedAdapter, says


@pytest.fixture
async def other(core: Core) -> AsyncIterator[Core]:
    """Another process on the same ledger."""
    async with running_core(core.path, prefix="other") as process:
        yield process


def duties(core: Core) -> Duties:
    return core.duties


def holders(path: Path) -> list[tuple[str, str]]:
    return query(path, "SELECT name, holder FROM duty ORDER BY name")


def holder(core: Core) -> str:
    return core.runner.runtime.holder


# --- who has one


async def test_what_another_process_has_is_refused_for_as_long(core: Core, other: Core) -> None:
    await duties(core).take("deletions")
    assert await duties(other).elsewhere("deletions") == 60
    with pytest.raises(Conflict):
        await duties(other).take("deletions")
    other.time.now += 60_000
    assert 0 < await duties(other).elsewhere("deletions") < 1
    assert await duties(core).elsewhere("deletions") == 0
    assert await duties(other).elsewhere("withdrawals") == 0


async def test_a_process_that_was_frozen_finds_its_duty_taken(core: Core, other: Core) -> None:
    frozen = duties(core)
    await frozen.take("expiry")
    other.time.now += 10_001
    assert await duties(other).elsewhere("expiry") == 0
    await duties(other).take("expiry")
    core.time.now = other.time.now
    with pytest.raises(Conflict):
        await frozen.take("expiry")
    assert await frozen.elsewhere("expiry") == 10
    assert holders(core.path) == [("expiry", holder(other))]
    await frozen.leave("expiry")
    assert holders(core.path) == [("expiry", holder(other))]


async def test_who_stops_leaves_all_that_can_be_left_and_the_rest_lapses(core: Core) -> None:
    had = duties(core)
    async with had.held():
        await had.take("retention")
        await had.take("deletions")
        core.ledger.refuse(LeaveDuty)
    assert holders(core.path) == [("retention", holder(core))]
    assert len(core.ledger.stored(LeaveDuty)) == 1


async def test_a_duty_is_written_again_when_half_of_its_time_is_over(core: Core) -> None:
    had = duties(core)
    for _ in range(4):
        await had.take("retention")
        core.time.now += 449_999
    assert [point.until - START for point in core.ledger.stored(TakeDuty)] == [900_000, 1_799_998]


# --- nothing to do


async def test_who_finds_nothing_to_do_has_no_duty_and_writes_nothing(core: Core) -> None:
    core.agent(DeletingAdapter(BR, otherwise=lambda _: says("a", "r-1")))
    await core.send("1")
    stored = len(core.ledger.units)
    await retention(core).sweep()
    await deletions(core).run_due()
    await expiry(core).sweep()
    assert (len(core.ledger.units), holders(core.path)) == (stored, [])


# --- retention


async def test_one_process_at_a_time_sweeps(core: Core, other: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=lambda _: says("a")))
    await core.send("1")
    for process in (core, other):
        process.time.now += 8 * DAY
    await retention(core).sweep()
    other.ledger.reads.clear()
    await retention(other).sweep()
    assert other.ledger.reads == ["duty"]
    assert holders(core.path) == [("retention", holder(core))]


async def test_a_sweep_that_another_process_took_over_ends_before_its_next_step(core: Core, other: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=lambda _: says("a")))
    await core.send("1")
    core.time.now += 8 * DAY
    other.time.now += 8 * DAY
    core.ledger.answer_read("duty", None)
    await duties(other).take("retention")
    with pytest.raises(Conflict):
        await retention(core).sweep()
    assert core.ledger.stored(ExpireTasks) == []


# --- deletions at backends


async def test_jobs_are_left_to_the_process_that_makes_the_attempts(core: Core, other: Core) -> None:
    for process in (core, other):
        process.agent(DeletingAdapter(BR))
    change(core.path, "INSERT INTO delete_job VALUES ('t r-1', 'echo', 'r-1', ?, 0)", START)
    busy = duties(core)
    await busy.take("deletions")
    assert await soon(deletions(other).run_due()) == 5
    assert other.ledger.stored(MoveDeletion) == []
    await busy.leave("deletions")
    assert await soon(deletions(other).run_due()) is None
    assert query(core.path, "SELECT handle FROM delete_job") == []


async def test_who_has_made_all_attempts_leaves_the_duty(core: Core) -> None:
    core.agent(DeletingAdapter(BR))
    change(core.path, "INSERT INTO delete_job VALUES ('t r-1', 'echo', 'r-1', ?, 0)", START)
    jobs = deletions(core)
    await soon(jobs.run_due())
    assert [point.duty for point in core.ledger.stored(TakeDuty)] == ["deletions"]
    assert holders(core.path) == []


# --- questions that have expired


def expiry(core: Core) -> QuestionExpiry:
    ledger: Any = core.ledger
    paused = PausedTurns(ledger, core.runner, core.fanout, core.time.clock)
    return QuestionExpiry(ledger, core.runner, paused, core.time.clock, core.duties, lambda: Agents(tuple(core.agents)))
