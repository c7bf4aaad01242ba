"""Who could not say that it lives is not taken for dead: a ledger that nobody can write is no sign of death."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.a2a.model import Task, TaskState
from gateway.ledger.leases import CountTries, Heartbeat, Renew
from gateway.ledger.tasks import Finish
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import START, Core, Gate, answer, frames, query, running_core, soon, until
from tests.support.scripted import G, Pause, ScriptedAdapter, says

OFTEN = LeaseTimes(5.0, 500)
AT_ONCE = LeaseTimes(start=0.0)
"""Serves before what was left has been looked at."""
LATER = START + 6000
"""A lease that was taken or renewed at START has run out."""


@asynccontextmanager
async def a_turn_on_a_locked_ledger(path: Path) -> AsyncIterator[tuple[Core, Core, Task, Pause]]:
    """One process works on it and has a renewal to store, the other has found its lease run out and writes something too."""
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


async def test_who_renews_as_soon_as_that_can_be_stored_is_left_alone(tmp_path: Path) -> None:
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


async def test_where_it_took_long_to_store_anything_nobody_is_judged_in_that_round(tmp_path: Path) -> None:
    async with a_turn_on_a_locked_ledger(tmp_path / "ledger.db") as (one, two, _, _):
        two.time.monotonic += 4
        two.ledger.let_go()
        next_round = two.ledger.hold(Heartbeat)
        await soon(next_round.reached.wait())
        assert two.ledger.stored(CountTries) == []
        one.ledger.let_go()
        await until(lambda: lease_of(one) > LATER)
        two.ledger.let_go()


async def test_who_had_the_chance_and_is_silent_is_taken_for_dead(tmp_path: Path) -> None:
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
async def test_the_slower_the_ledger_the_longer_is_the_chance_to_speak(
    tmp_path: Path, took: float, chance: float
) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(G, [pause]))
        task = await one.send("1", at_once=True)
        await soon(pause.reached.wait())
    held: list[Gate] = []
    async with running_core(
        path, prefix="two", now=LATER, lease=AT_ONCE, before=lambda ledger: held.append(ledger.hold(Heartbeat))
    ) as two:
        two.agent(ScriptedAdapter(G))
        await soon(held[0].reached.wait())
        two.time.monotonic += took
        watching = await two.subscribe(task.id)
        two.ledger.let_go()
        await frames(watching)
        assert list(two.waits) == [pytest.approx(chance)]


async def test_a_clock_that_is_set_while_the_others_have_their_chance_judges_nobody(tmp_path: Path) -> None:
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


async def test_where_nobody_has_left_anything_nothing_is_written(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=OFTEN) as core:
        looked = core.ledger.slow_read("unfinished_turns")
        await soon(looked.reached.wait())
        looked.go.set()
        again = core.ledger.slow_read("unfinished_turns")
        await soon(again.reached.wait())
        assert core.ledger.units == []
        again.go.set()
