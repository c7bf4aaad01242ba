"""GetTask that waits: woken as streams are, limited as they are, and never for longer than it may."""

import asyncio
from pathlib import Path

import pytest

from gateway.a2a.draft_1_1 import LongPollRequest
from gateway.a2a.errors import Busy, TaskNotFound, TooManyRequests
from gateway.a2a.model import Task, TaskState
from gateway.engine.fanout import StreamLimits
from gateway.ledger.threads import Caller
from gateway.operations.long_poll import LONGEST, LongPolls
from gateway.operations.quotas import ConcurrencyLimit
from gateway.operations.task_reader import TaskReader
from gateway.ports.adapter import CallCompleted, Ending, TextDelta
from tests.support.core import Core, answer, logged, running_core, soon, until
from tests.support.draft_1_1 import draft, generation_of
from tests.support.scripted import G, Pause, ScriptedAdapter, says

ASKS = [CallCompleted("r1", Ending.INPUT_REQUIRED)]


def polls(core: Core, streams: ConcurrencyLimit | None = None, longest: float = 3600.0) -> LongPolls:
    """Without `longest`, something else ends a poll."""
    reader = TaskReader(core.ledger, core.runner)
    limit = streams or ConcurrencyLimit("open streams")
    return LongPolls(core.ledger, core.runner, core.fanout, reader, core.drain, limit, longest)


async def poll(core: Core, task: str, seen: int, using: LongPolls | None = None) -> Task:
    request = LongPollRequest(id=task, current_generation=seen)
    return await (using or polls(core)).task(draft(core), request, seen)


async def waits(core: Core) -> None:
    await until(lambda: core.runner.log_tail.streams)


def nothing_is_left(core: Core) -> bool:
    return core.fanout.streams == 0 and not core.runner.log_tail.streams


async def running(core: Core) -> tuple[Task, Pause]:
    """A task that is silent behind its first event."""
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    task = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    await until(lambda: logged(core.path, task.id))
    return await core.get(task.id, draft(core)), pause


async def asked(core: Core, request: LongPollRequest) -> Task:
    return await core.operations.get_task(draft(core), request)


async def test_a_task_that_is_further_on_is_answered_at_once(core: Core) -> None:
    task, _ = await running(core)
    for seen in (-5, 0, generation_of(task) - 1):
        assert await poll(core, task.id, seen) == task
    assert nothing_is_left(core)


async def test_a_call_without_a_generation_is_answered_at_once(core: Core) -> None:
    task, _ = await running(core)
    assert await core.operations.get_task(draft(core), LongPollRequest(id=task.id)) == task


async def test_the_answer_comes_with_the_next_event(core: Core) -> None:
    task, pause = await running(core)
    seen = generation_of(task)
    async with asyncio.TaskGroup() as group:
        request = LongPollRequest(id=task.id, current_generation=seen)
        asking = [group.create_task(poll(core, task.id, seen)), group.create_task(asked(core, request))]
        await until(lambda: len(core.runner.log_tail.streams) == 2)
        assert not any(each.done() for each in asking)
        pause.go.set()
    assert all(generation_of(each.result()) > seen for each in asking)
    await until(lambda: nothing_is_left(core))


async def test_an_event_of_another_process_is_an_answer_too(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one, running_core(path, prefix="two") as other:
        task, pause = await running(one)
        other.agent(ScriptedAdapter(G))
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(poll(other, task.id, generation_of(task)))
            await waits(other)
            pause.go.set()
        assert generation_of(asking.result()) > generation_of(task)
        assert nothing_is_left(other)


async def test_an_answer_waits_for_the_generation_that_it_is_asked_for(core: Core) -> None:
    first, second = Pause(), Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), first, TextDelta("b"), second, *says("c")]))
    task = await core.send("1", at_once=True)
    await soon(first.reached.wait())
    await until(lambda: logged(core.path, task.id))
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(poll(core, task.id, 3))
        await waits(core)
        [stream] = core.runner.log_tail.streams
        first.go.set()
        await soon(second.reached.wait())
        await until(lambda: stream.number == 2)
        for _ in range(3):  # more reads than an answer takes
            assert len(await core.ledger.events(task.id, 0)) == 2
            assert generation_of(await core.get(task.id, draft(core))) == 3
        assert not asking.done()
        second.go.set()
    assert generation_of(asking.result()) > 3
    assert answer(asking.result()).startswith("abc")


async def test_the_end_of_a_task_is_the_last_answer(core: Core) -> None:
    task, pause = await running(core)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(poll(core, task.id, 99))
        await waits(core)
        pause.go.set()
    assert asking.result().status.state is TaskState.COMPLETED
    assert await poll(core, task.id, 99) == asking.result()
    assert nothing_is_left(core)


async def test_a_task_that_waits_for_its_caller_is_waited_for(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, says("done")))
    task = await core.send("1", draft(core))
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(poll(core, task.id, generation_of(task)))
        await waits(core)
        await core.send("2", task=task.id)
    assert generation_of(asking.result()) > generation_of(task)


async def test_what_happens_between_the_look_and_the_wait_is_not_missed(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, says("done")))
    task = await core.send("1", draft(core))
    look = core.ledger.slow_read("latest_events")
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(poll(core, task.id, generation_of(task)))
        await soon(look.reached.wait())
        await core.send("2", task=task.id)
        await soon(core.runner.idle())
        look.go.set()
    assert asking.result().status.state is TaskState.COMPLETED


async def test_a_drain_ends_the_wait_with_the_task_as_it_is(core: Core) -> None:
    task, _ = await running(core)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(poll(core, task.id, generation_of(task)))
        await waits(core)
        core.drain.set()
    assert asking.result() == task
    assert await poll(core, task.id, generation_of(task)) == task
    assert nothing_is_left(core)


async def test_no_wait_is_longer_than_the_longest(core: Core) -> None:
    task, _ = await running(core)
    assert await soon(poll(core, task.id, generation_of(task), polls(core, longest=0.0))) == task
    assert nothing_is_left(core)
    assert LONGEST < 30


async def test_a_caller_that_leaves_leaves_nothing(core: Core) -> None:
    task, _ = await running(core)
    streams = ConcurrencyLimit("open streams")
    streams.most = 1
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(poll(core, task.id, generation_of(task), polls(core, streams)))
        await waits(core)
        asking.cancel()
    assert nothing_is_left(core)
    streams.take(Caller("ada"))


async def test_who_waits_counts_as_a_stream_and_who_need_not_does_not(core: Core) -> None:
    task, _ = await running(core)
    streams = ConcurrencyLimit("open streams")
    streams.most = 1
    using, seen = polls(core, streams), generation_of(task)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(poll(core, task.id, seen, using))
        await waits(core)
        with pytest.raises(TooManyRequests, match="1 open streams"):
            await poll(core, task.id, seen, using)
        assert await poll(core, task.id, seen - 1, using) == task
        asking.cancel()


async def test_a_process_without_room_for_a_stream_has_none_for_a_wait(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", limits=StreamLimits(streams=1)) as core:
        task, _ = await running(core)
        stream = await core.subscribe(task.id)
        with pytest.raises(Busy, match="Too many streams"):
            await poll(core, task.id, generation_of(task))
        assert await poll(core, task.id, 0) == task
        await stream.aclose()


async def test_an_unknown_task_is_not_waited_for(core: Core) -> None:
    core.agent(ScriptedAdapter(G))
    with pytest.raises(TaskNotFound):
        await poll(core, "unknown", 1)
    assert nothing_is_left(core)
