"""The system's clock is set forwards and back while turns run: no turn of a living process is taken over, every turn of a
dead process is, and the events of a task stay in order."""

from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.a2a.model import TaskState, TaskStatus
from gateway.foundation.clock import milliseconds
from gateway.ledger.calls import RESTARTED
from gateway.ledger.events import Frame
from gateway.ledger.leases import Renew
from gateway.ports.adapter import CallCompleted, Ending, TextDelta
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.support.core import START, Core, answer, events, frames, query, running_core, soon, until
from tests.support.scripted import BR, BS, G, Pause, ScriptedAdapter, says

pytestmark = pytest.mark.fault("T1")

AHEAD = 400 * 86_400_000
BACK = -7_200_000
STEPS = pytest.mark.parametrize("step", [AHEAD, BACK], ids=["400 days ahead", "2 hours back"])
EVERY_OWNER = pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])

OFTEN = LeaseTimes(5.0, 200)
"""The upkeep comes round forty times in a second."""

SELDOM = LeaseTimes(5.0, 25)
"""Five times: its holder has some time to renew a lease."""


def _set(step: int, *cores: Core) -> None:
    """There is one clock for all processes of a machine."""
    for core in cores:
        core.time.now += step


def _moments(read: list[Frame]) -> list[int]:
    told = [event.task or event.status_update for event in events(read)]
    return [milliseconds(each.status.timestamp) for each in told if each is not None and each.status.timestamp]


@STEPS
@EVERY_OWNER
async def test_a_turn_whose_process_lives_is_not_taken_from_it(tmp_path: Path, step: int, ownership: Ownership) -> None:
    path = tmp_path / "ledger.db"
    async with (
        running_core(path, prefix="one", lease=SELDOM) as one,
        running_core(path, prefix="two", lease=SELDOM) as other,
    ):
        pause = Pause()
        one.agent(ScriptedAdapter(ownership, [TextDelta("a"), pause, *says("b", "r1")], says("c", "r2")))
        other.agent(ScriptedAdapter(ownership))
        running = await one.send("1", context="c", at_once=True)
        waiting = await one.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
        gate = one.ledger.hold(Renew)
        with capture_logs() as logs:
            _set(step, one, other)
            # The other one looks first: what it finds looks dead.
            await soon(gate.reached.wait())
            await until(lambda: any(line["event"] == "clock.set" for line in logs))
            one.ledger.let_go()
            looked = other.ledger.slow_read("unfinished_turns")
            await soon(looked.reached.wait())
            looked.go.set()
        pause.go.set()
        await soon(one.runner.idle())

        assert [answer(await other.get(task.id)) for task in (running, waiting)] == ["ab", "c"]
        assert violations(path) == []


@STEPS
@EVERY_OWNER
@pytest.mark.parametrize("starts", ["before", "after"])
async def test_what_a_dead_process_left_does_not_lie_there_for_as_long_as_the_clock_was_wrong(
    tmp_path: Path, step: int, ownership: Ownership, starts: str
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one", lease=OFTEN) as one:
        pause = Pause()
        one.agent(ScriptedAdapter(ownership, [TextDelta("a"), pause]))
        lost = [await one.send(text, context="c", at_once=True) for text in ("1", "2")]
        await soon(pause.reached.wait())
        if starts == "before":
            async with running_core(path, prefix="two", lease=OFTEN) as other:
                await one.die()
                other.agent(ScriptedAdapter(ownership, says("b", "r2"), says("c", "r3")))
                _set(step, other)
                # It has the agent: what waited runs there.
                await _ends(other, path, [task.id for task in lost[:1]])
                assert answer(await other.get(lost[1].id)) == "b"
        else:
            await one.die()
            async with running_core(path, prefix="two", lease=OFTEN, now=START + step) as other:
                await _all_end(path)
                other.agent(ScriptedAdapter(ownership, says("c", "r3")))
                await _ends(other, path, [task.id for task in lost])


async def _all_end(path: Path) -> None:
    await until(lambda: not query(path, "SELECT 1 FROM turn WHERE ended_at IS NULL"))


async def _ends(other: Core, path: Path, lost: list[str]) -> None:
    await _all_end(path)
    for task in [await other.get(name) for name in lost]:
        assert task.status.state is TaskState.FAILED
        assert task.status.message is not None
        assert (task.status.message.metadata or {})["errorClass"] == RESTARTED
        assert task.status.timestamp is not None
        assert milliseconds(task.status.timestamp) >= START
    assert answer(await other.send("3", context="c")) == "c"
    assert violations(path) == []


@STEPS
async def test_a_turn_that_runs_meanwhile_ends_well_and_its_times_do_not_go_back(tmp_path: Path, step: int) -> None:
    async with running_core(tmp_path / "ledger.db") as core:
        pause = Pause()
        asks = CallCompleted("r", ending=Ending.INPUT_REQUIRED)
        core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, asks], says("b"), says("c")))
        stream = await core.stream("1", context="c")
        await soon(pause.reached.wait())
        _set(step, core)
        pause.go.set()
        read = await frames(stream)
        task = events(read)[0].task
        assert task is not None
        asking = await core.get(task.id)
        _set(step, core)
        rest = await frames(await core.stream("2", task=task.id))
        ended = await core.get(task.id)
        after = await core.send("3", context="c")

        assert (asking.status.state, answer(ended), answer(after)) == (TaskState.INPUT_REQUIRED, "ab", "c")
        moments = [*_moments(read), *_moments(rest)]
        assert len(moments) >= 4
        assert all(earlier <= later for earlier, later in pairwise(moments))
        assert ended.status == _last(rest)
        assert asking.status == _last(read)
        assert violations(core.path) == []


def _last(read: list[Frame]) -> TaskStatus | None:
    update = events(read)[-1].status_update
    return update.status if update is not None else None
