"""Reads of tasks: live and stored ones agree, only stored events are shown, and each read shows one moment."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import TaskState
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import Append, Finish
from gateway.ports.adapter import CallCompleted, Ending, Progress, ReasoningDelta, TextDelta
from tests.support.core import Core, answer, events, frames, numbers, running_core, said, soon, states, streamed
from tests.support.rows import query
from tests.support.scripted import G, Pause, Script, ScriptedAdapter, says

ASKS: Script = [TextDelta("hm "), CallCompleted(ending=Ending.INPUT_REQUIRED)]


async def test_a_running_task_is_the_same_from_memory_and_from_the_database(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as here, running_core(path, prefix="two") as there:
        pause = Pause()
        script: Script = [Progress("p"), ReasoningDelta("r"), TextDelta("a"), None, TextDelta("b"), pause, *says("c")]
        here.agent(ScriptedAdapter(G, ASKS, script))
        there.agent(ScriptedAdapter(G))
        asked = await here.send("1")
        assert await there.get(asked.id) == await here.get(asked.id)
        await here.send("2", task=asked.id, at_once=True)
        await soon(pause.reached.wait())
        live = await here.get(asked.id)
        assert (live.status.state, answer(live)) == (TaskState.WORKING, "hm ab")
        assert await there.get(asked.id) == live
        [resumed] = events([(await frames_at(there, asked.id, numbers_of(there.path, asked.id)))[0]])
        assert resumed.task == live
        stream = await there.subscribe(asked.id)
        assert (await soon(anext(aiter(stream))))[0][0] == numbers_of(there.path, asked.id)
        await stream.aclose()
        pause.go.set()
        await soon(here.runner.idle())
        assert await there.get(asked.id) == await here.get(asked.id)


def numbers_of(path: Path, task: str) -> int:
    [(last,)] = query(path, "SELECT max(last) FROM event WHERE task = ?", task)
    return int(last)


async def frames_at(core: Core, task: str, last: int) -> list[tuple[int | None, bytes]]:
    stream = await core.subscribe(task, core.call(last=last))
    first = await soon(anext(aiter(stream)))
    await stream.aclose()
    return first


class _LateLedger:
    """Wraps a ledger: the end of a turn is stored, but this process learns of it only from `report_end`."""

    _ledger: Ledger

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []
        self.stored = asyncio.Event()

    def around(self, ledger: Ledger) -> "_LateLedger":
        self._ledger = ledger
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def submit(self, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]) -> None:
        def stored(error: Exception | None) -> None:
            if any(isinstance(point, Finish) for point in points):
                self._held.append(lambda: done(error))
                self.stored.set()
            else:
                done(error)

        self._ledger.submit(points, stored)

    def report_end(self) -> None:
        for done in self._held:
            done()


async def test_an_end_that_a_stream_has_shown_is_not_taken_back(core: Core) -> None:
    """The stream reads the log, which may have the end before the process that runs the task knows that it is stored."""
    late = _LateLedger()
    core.ledger.wrap(late.around)
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("1", at_once=True)
    await soon(late.stored.wait())
    resumed = await frames(await core.subscribe(task.id, core.call(last=0)))
    assert states(resumed)[-1:] == ["COMPLETED"]
    shown = await core.get(task.id)
    late.report_end()
    await soon(core.runner.idle())
    assert (shown.status.state, answer(shown)) == (TaskState.COMPLETED, "a")
    assert shown == await core.get(task.id)


@pytest.mark.parametrize("first", ["1", "waits"])
async def test_the_first_state_of_a_task_is_shown_as_it_was(core: Core, first: str) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], otherwise=lambda _: says("b")))
    running = await core.send("1", context="c", at_once=True)
    waiting = await core.send("2", context="c", at_once=True)
    task = running if first == "1" else waiting
    assert events(await frames_at(core, task.id, 0))[0].task == task
    pause.go.set()
    await soon(core.runner.idle())
    [began] = [event.task for event in events(await frames_at(core, task.id, 0)) if event.task]
    assert began == task


@pytest.mark.parametrize("script", [[CallCompleted()], [Progress("p"), CallCompleted()]])
async def test_a_task_that_began_at_once_is_shown_as_working(core: Core, script: Script) -> None:
    core.agent(ScriptedAdapter(G, script))
    task = await core.send("1")
    read = await frames(await core.subscribe(task.id, core.call(last=0)))
    assert states(read) == ["WORKING", "COMPLETED"]


async def test_a_read_that_was_overtaken_shows_one_moment(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, says("blue")))
    asked = await core.send("paint")
    reading = core.ledger.slow_read("whole_task")
    async with asyncio.TaskGroup() as group:
        got = group.create_task(core.get(asked.id))
        await soon(reading.reached.wait())
        done = await core.send("blue", task=asked.id)
        reading.go.set()
    assert got.result() == asked
    assert await core.get(asked.id) == done


async def test_a_turn_of_another_process_that_ended_during_a_read_is_shown_with_what_came_behind_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one, running_core(path, prefix="two") as two:
        pause = Pause()
        one.agent(ScriptedAdapter(G, [pause, *ASKS], says("blue")))
        two.agent(ScriptedAdapter(G))
        asked = await one.send("paint", at_once=True)
        await soon(pause.reached.wait())
        reading = two.ledger.slow_read("whole_task")
        async with asyncio.TaskGroup() as group:
            got = group.create_task(two.get(asked.id))
            await soon(reading.reached.wait())
            pause.go.set()
            await soon(one.runner.idle())
            done = await one.send("blue", task=asked.id)
            reading.go.set()
        assert got.result() == done


async def test_a_subscriber_whose_read_was_overtaken_misses_nothing(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, ASKS, [TextDelta("bl"), pause, *says("ue")]))
    asked = await core.send("paint")
    reading = core.ledger.slow_read("whole_task")
    async with asyncio.TaskGroup() as group:
        subscribing = group.create_task(core.subscribe(asked.id))
        await soon(reading.reached.wait())
        await core.send("blue", task=asked.id, at_once=True)
        await soon(pause.reached.wait())
        await core.get(asked.id)
        reading.go.set()
    pause.go.set()
    read = await frames(subscribing.result())
    assert streamed(read) == "hm blue"
    first = read[0][0]
    assert first is not None
    assert numbers(read) == list(range(first, 7))
    assert states(read)[-1] == "COMPLETED"


async def test_a_task_is_not_shown_with_what_could_not_be_stored(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    lost = core.ledger.refuse(Append)
    task = await core.send("1", at_once=True)
    await soon(lost.wait())
    with pytest.raises(LedgerUnavailable):
        await core.get(task.id)
    with pytest.raises(LedgerUnavailable):
        await core.subscribe(task.id)
    assert not core.fanout.open(task.id).watched
    pause.go.set()
    await soon(core.runner.idle())
    read = await core.get(task.id)
    assert (answer(read), said(read)) == ("", ["U 1"])


async def test_a_task_that_another_process_took_over_is_read_from_the_database(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        pause, more = Pause(), Pause()
        one.agent(ScriptedAdapter(G, [TextDelta("a"), pause, TextDelta("b"), more]))
        task = await one.send("1", at_once=True)
        await soon(pause.reached.wait())
        await one.get(task.id)
        async with running_core(path, prefix="two", now=one.time.now + 6000):
            pass
        pause.go.set()
        await soon(more.reached.wait())
        settled = await one.get(task.id)
        assert (settled.status.state, answer(settled)) == (TaskState.FAILED, "a")
        with pytest.raises(Exception, match="has ended"):
            await one.subscribe(task.id)


async def test_an_unreadable_database_is_an_error(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    task = await core.send("1")
    core.ledger.fail_reads("task", "whole_task", "turns", "events", "tasks", "context")
    for reading in (core.get(task.id), core.list(), core.subscribe(task.id), core.send("2", context="c")):
        with pytest.raises(LedgerUnavailable):
            await reading
    assert not core.fanout.open(task.id).watched


async def test_a_read_during_which_the_turn_ends_in_another_process_shows_its_tokens(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as here, running_core(path, prefix="two") as there:
        pause = Pause()
        tokens = {"input_tokens": 3, "output_tokens": 4}
        here.agent(ScriptedAdapter(G, [TextDelta("a"), pause, CallCompleted(usage=tokens)]))
        there.agent(ScriptedAdapter(G))
        task = await here.send("1", at_once=True)
        await soon(pause.reached.wait())
        reading = there.ledger.slow_read("whole_task")
        async with asyncio.TaskGroup() as group:
            got = group.create_task(there.get(task.id))
            await soon(reading.reached.wait())
            pause.go.set()
            await soon(here.runner.idle())
            reading.go.set()
        assert got.result() == await there.get(task.id)
