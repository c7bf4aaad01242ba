"""Streams of tasks in other processes: woken when the log has grown, ended with the task, and free without streams."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.a2a.errors import Busy
from gateway.engine.fanout import Fanout, StreamLimits
from gateway.engine.other_processes import LogTailStream
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ports.adapter import TextDelta
from tests.support.core import Core, broken_off, frames, logged, query, running_core, soon, until
from tests.support.hints import Hints
from tests.support.scripted import G, Pause, ScriptedAdapter, says


def follow(core: Core, task: str, number: int = 0, limits: StreamLimits | None = None) -> LogTailStream:
    """As in another process: what is published here does not reach it."""
    other = Fanout(limits or StreamLimits())
    return LogTailStream(task, [], number, other.open(task).subscribe(), core.ledger, core.runner.log_tail)


async def test_a_stream_shows_the_log_and_ends_with_the_task(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    task = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    stream = follow(core, task.id)
    assert core.runner.log_tail.streams
    pause.go.set()
    assert await frames(stream) == logged(core.path, task.id)
    assert not core.runner.log_tail.streams


async def test_what_has_come_while_nobody_read_is_read_in_pages(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    task = await core.send("1", at_once=True)
    await until(lambda: logged(core.path, task.id))
    pause.go.set()
    await soon(core.runner.idle())
    stream = follow(core, task.id, limits=StreamLimits(bytes=1))
    core.ledger.reads.clear()
    assert await frames(stream) == logged(core.path, task.id)
    assert core.ledger.reads.count("events") == len(query(core.path, "SELECT 1 FROM event WHERE task = ?", task.id)) > 1


async def test_a_closed_stream_is_not_followed_any_more(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [Pause()]))
    task = await core.send("1", at_once=True)
    await follow(core, task.id).aclose()
    assert not core.runner.log_tail.streams


async def test_a_database_that_cannot_be_read_for_a_while_ends_no_stream(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("b")]))
    task = await core.send("1", at_once=True)
    core.ledger.fail_reads("latest_events")
    with capture_logs() as logs:
        stream = follow(core, task.id)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(frames(stream))
            pause.go.set()
            await soon(core.runner.idle())
            await until(lambda: any(line["event"] == "watch.skipped" for line in logs))
            core.ledger.fail_reads()
    assert reading.result() == logged(core.path, task.id)


async def test_a_stream_of_which_no_change_is_heard_shows_the_log_a_little_later(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", before=Hints()) as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, [pause, *says("b")]))
        task = await core.send("1", at_once=True)
        stream = follow(core, task.id)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(frames(stream))
            await until(lambda: "latest_events" in core.ledger.reads)
            pause.go.set()
        assert reading.result() == logged(core.path, task.id)


@pytest.mark.parametrize("error", [LedgerUnavailable("the disk is gone"), CorruptRecord("a row")])
async def test_a_log_that_cannot_be_read_breaks_the_stream_off(core: Core, error: Exception) -> None:
    core.agent(ScriptedAdapter(G, says("b")))
    task = await core.send("1")
    stream = follow(core, task.id)
    core.ledger.fail_reads("events", error=error)
    assert await broken_off(stream) == ([], error)


@pytest.mark.parametrize("ended", [False, True])
async def test_a_stream_whose_turn_has_left_the_process_is_told_unless_the_log_has_its_end(
    core: Core, ended: bool
) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("b")]))
    task = await core.send("1", at_once=True)
    other, gone = Fanout(StreamLimits()), Busy("It is not here any more.")
    subscription = other.open(task.id).subscribe()
    stream = LogTailStream(task.id, [], 0, subscription, core.ledger, core.runner.log_tail)
    await soon(pause.reached.wait())
    if ended:
        pause.go.set()
        await soon(core.runner.idle())
    other.close(task.id, gone)
    if ended:
        assert await frames(stream) == logged(core.path, task.id)
    else:
        assert await broken_off(stream) == (logged(core.path, task.id), gone)
    pause.go.set()


async def test_a_deleted_task_ends_its_stream(core: Core) -> None:
    assert await frames(follow(core, "nobody's")) == []


async def test_many_streams_are_asked_for_together(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("b")], otherwise=lambda _: [pause, *says("b")]))
    tasks = [(await core.send("1", at_once=True)).id for _ in range(3)]
    streams = [follow(core, task) for task in tasks for _ in range(3)]
    asked = core.ledger.slow_read("latest_events")
    await soon(asked.reached.wait())
    asked.go.set()
    pause.go.set()
    async with asyncio.TaskGroup() as group:
        reading = [group.create_task(frames(stream)) for stream in streams]
    assert [read.result() for read in reading] == [logged(core.path, task) for task in tasks for _ in range(3)]
    await until(lambda: not core.runner.log_tail.streams)
