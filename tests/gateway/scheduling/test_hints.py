"""What is heard of other processes reaches the turns of this one at once. The leases are so long that nothing else does."""

from pathlib import Path

import pytest

from gateway.a2a.model import TaskState
from gateway.ledger.calls import Prepare
from gateway.ledger.leases import RequestCancel
from gateway.ports.adapter import TextDelta
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import Core, answer, query, running_core, soon, until
from tests.support.hints import Hints
from tests.support.scripted import G, Pause, ScriptedAdapter, says

LONG = LeaseTimes(1000)


@pytest.fixture
def hints() -> Hints:
    return Hints()


async def running_turn(core: Core) -> tuple[str, str]:
    """A task that runs and cannot end by itself, and its turn."""
    adapter = ScriptedAdapter(G, [TextDelta("a"), Pause()])
    core.agent(adapter)
    task = (await core.send("1", at_once=True)).id
    await soon(adapter.paused.wait())
    [(turn,)] = query(core.path, "SELECT id FROM turn WHERE task = ?", task)
    return task, turn


async def test_changes_of_other_tasks_cost_no_reads(tmp_path: Path, hints: Hints) -> None:
    async with running_core(tmp_path / "ledger.db", lease=LONG, before=hints) as core:
        task, _ = await running_turn(core)
        core.ledger.reads.clear()
        hints.say("another", "and another")
        hints.say(task)
        await until(lambda: "cancel_requests" in core.ledger.reads)
        assert core.ledger.reads == ["cancel_requests"]


@pytest.mark.parametrize("named", [True, False])
async def test_a_cancel_that_another_process_stored_ends_the_turn(tmp_path: Path, hints: Hints, named: bool) -> None:
    async with running_core(tmp_path / "ledger.db", lease=LONG, before=hints) as core:
        task, turn = await running_turn(core)
        await core.ledger.commit(RequestCancel((turn,)))
        if named:
            hints.say(task)
        else:
            hints.say_look()
        await soon(core.runner.idle())
        assert (await core.get(task)).status.state is TaskState.CANCELED


async def test_a_turn_that_waits_for_another_process_begins_when_that_has_ended(tmp_path: Path, hints: Hints) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with (
        running_core(path, prefix="one", lease=LONG) as one,
        running_core(path, prefix="two", lease=LONG, before=hints) as other,
    ):
        one.agent(ScriptedAdapter(G, [pause, *says("a")]))
        other.agent(ScriptedAdapter(G, says("b")))
        first = await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        looked = other.ledger.slow_read("waiting_task")
        second = await other.send("2", context="c", at_once=True)
        await soon(looked.reached.wait())
        looked.go.set()
        other.ledger.reads.clear()
        await until(lambda: other.ledger.reads == ["open_turns"] * 2)
        hints.say(first.id)
        await until(lambda: other.ledger.reads == ["open_turns"] * 3)
        tries = refused(other)
        pause.go.set()
        await soon(one.runner.idle())
        hints.say(first.id)
        await soon(other.runner.idle())
        assert refused(other) == tries
        assert answer(await other.get(second.id)) == "b"


def refused(core: Core) -> int:
    """How often a turn of this process tried in vain to begin."""
    return sum(isinstance(point, Prepare) for unit in core.ledger.failed for point in unit)
