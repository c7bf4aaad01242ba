"""Two processes on one database. Source: docs/state-model.md, scenarios of group L."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.errors import Busy, NotFound, TaskNotCancelable, TaskNotFound, Unanswered
from gateway.a2a.model import Task, TaskState
from gateway.core.history import INTERRUPTED
from gateway.ledger.calls import RESTARTED, Prepare
from gateway.ledger.errors import Conflict
from gateway.ledger.events import Frame
from gateway.ledger.port import Changed
from gateway.operations.contexts import Contexts
from gateway.ports.adapter import CallCompleted, DirectReply, Ending, ServiceRequest, TextDelta
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import (
    BOUND,
    START,
    Core,
    FragileLedger,
    answer,
    broken_off,
    deaf,
    error_class,
    events,
    frames,
    logged,
    message,
    numbers,
    query,
    running_core,
    soon,
    states,
    streamed,
    until,
)
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])

QUICK = LeaseTimes(0.03)
"""The upkeep comes round a hundred times in a second; the clocks of the tests stand still, so that no lease runs out."""

LATER = START + 6000
"""A lease that was taken or renewed at START has run out."""


@asynccontextmanager
async def two(path: Path) -> AsyncIterator[tuple[Core, Core]]:
    path = path / "ledger.db"
    async with (
        running_core(path, prefix="one", lease=LeaseTimes(5.0, 500)) as one,
        running_core(path, prefix="two", lease=LeaseTimes(5.0, 500)) as other,
    ):
        yield one, other


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Core, Core]]:
    async with two(tmp_path) as cores:
        yield cores


def echo(request: ServiceRequest) -> Script:
    text = request.message.parts[0].text
    return [None, *says(f"re {text}", f"r-{text}")]


async def some_upkeeps(core: Core) -> None:
    """Three looks at what is left by others have begun and ended."""
    for _ in range(3):
        looked = core.ledger.slow_read("unfinished_turns")
        await soon(looked.reached.wait())
        looked.go.set()
    await core.ledger.commit()


# --- 133: one after another -------------------------------------------------------------------------------------------


@BOTH
async def test_133_turns_of_one_thread_run_one_after_another_across_processes(
    both: tuple[Core, Core], ownership: Ownership
) -> None:
    one, other = both
    pause = Pause()
    one.agent(ScriptedAdapter(ownership, [pause, *says("a", "r1")]))
    second = ScriptedAdapter(ownership, says("b", "r2"))
    other.agent(second)
    await one.send("1", context="c", at_once=True)
    waiting = await other.send("2", context="c", at_once=True)
    assert waiting.status.state is TaskState.SUBMITTED
    await some_upkeeps(one)
    await some_upkeeps(other)
    assert second.requests == []
    assert (await one.get(waiting.id)).status.state is TaskState.SUBMITTED
    pause.go.set()
    await soon(other.runner.idle())
    assert second.sent == [("r1", ["U 2"]) if ownership is BR else (None, ["U 1", "A a", "U 2"])]
    assert answer(await one.get(waiting.id)) == "b"


async def test_133_a_turn_that_waits_runs_in_the_other_process_when_its_own_dies_behind_the_one_that_goes_on(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as (one, other):
        pause = Pause()
        one.agent(ScriptedAdapter(G, [pause, *says("a")], says("b")))
        other.agent(ScriptedAdapter(G))
        running = await one.send("1", context="c", at_once=True)
        waiting = await other.send("2", context="c", at_once=True)
        await other.die()
        await some_upkeeps(one)
        watching = await one.subscribe(waiting.id)
        one.time.now = LATER
        await until(lambda: query(one.path, "SELECT count(DISTINCT process) FROM turn") == [(1,)])
        assert (await one.get(waiting.id)).status.state is TaskState.SUBMITTED
        pause.go.set()
        assert states(await frames(watching)) == ["SUBMITTED", "WORKING", "COMPLETED"]
        await soon(one.runner.idle())
        assert [answer(await one.get(task.id)) for task in (running, waiting)] == ["a", "b"]


async def test_133_reject_refuses_while_another_process_is_at_work(both: tuple[Core, Core]) -> None:
    one, other = both
    pause = Pause()
    one.agent(ScriptedAdapter(G, [pause, *says("a")]))
    other.agent(ScriptedAdapter(G, otherwise=echo), busy_context="reject")
    await one.send("1", context="c", at_once=True)
    with pytest.raises(Busy, match="at work on another message"):
        await other.send("2", context="c")
    pause.go.set()
    await soon(one.runner.idle())
    assert answer(await other.send("3", context="c")) == "re 3"


async def test_133_of_two_that_arrive_at_once_reject_takes_one(both: tuple[Core, Core]) -> None:
    for core in both:
        core.agent(ScriptedAdapter(G, otherwise=echo), busy_context="reject")
    await both[0].send("0", context="c")
    pauses = [core.ledger.slow_read("context") for core in both]

    async def send(core: Core, text: str) -> Task | None:
        try:
            return await core.send(text, context="c")
        except Busy:
            return None

    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(send(core, text)) for core, text in zip(both, "12", strict=True)]
        for pause in pauses:
            await soon(pause.reached.wait())
        for pause in pauses:
            pause.go.set()
    assert query(both[0].path, "SELECT count(*) FROM turn") == [(1 + sum(s.result() is not None for s in sending),)]
    assert any(s.result() is not None for s in sending)


async def test_133_the_bound_counts_what_waits_in_other_processes(both: tuple[Core, Core]) -> None:
    one, other = both
    pause = Pause()
    one.agent(ScriptedAdapter(G, [pause, *says("a")], otherwise=echo), queued_turns=1)
    other.agent(ScriptedAdapter(G, otherwise=echo), queued_turns=1)
    for text in "12":
        await one.send(text, context="c", at_once=True)
    with pytest.raises(Busy, match="with 1 waiting behind it"):
        await other.send("3", context="c")
    pause.go.set()
    await soon(one.runner.idle())


@BOTH
async def test_133_interrupt_cancels_what_runs_and_then_runs(tmp_path: Path, ownership: Ownership) -> None:
    async with running_core(tmp_path / "ledger.db") as core:
        adapter = ScriptedAdapter(ownership, [TextDelta("a"), Pause()], says("b", "r2"))
        core.agent(adapter, busy_context="interrupt")
        first = await core.send("1", context="c", at_once=True)
        await soon(adapter.paused.wait())
        second = await soon(core.send("2", context="c"))
        assert answer(second) == "b"
        cut = await core.get(first.id)
        assert (cut.status.state, answer(cut)) == (TaskState.CANCELED, "a")
        said = "A a" if ownership is G else f"U {INTERRUPTED}a"
        assert adapter.sent[1] == (None, ["U 1", said, "U 2"])
        assert adapter.broken_off == 1


async def test_133_interrupt_cancels_what_waits_as_well(core: Core) -> None:
    adapter = ScriptedAdapter(G, [Pause()], otherwise=echo)
    agent = core.agent(adapter)
    tasks = [(await core.send(text, context="c", at_once=True)).id for text in "12"]
    await soon(adapter.paused.wait())
    core.agent(agent.adapter, busy_context="interrupt")
    assert answer(await soon(core.send("3", context="c"))) == "re 3"
    assert [(await core.get(task)).status.state for task in tasks] == [TaskState.CANCELED] * 2


async def test_133_interrupt_disturbs_nobody_when_it_is_refused(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]), busy_context="interrupt", queued_turns=0)
    first = await core.send("1", context="c", at_once=True)
    with pytest.raises(TaskNotFound):
        await core.send("2", context="c", task="nobody's")
    pause.go.set()
    await soon(core.runner.idle())
    assert answer(await core.get(first.id)) == "a"


async def test_133_interrupt_reaches_the_process_that_runs_the_turn(both: tuple[Core, Core]) -> None:
    one, other = both
    first = ScriptedAdapter(G, [TextDelta("a"), Pause()])
    one.agent(first)
    other.agent(ScriptedAdapter(G, otherwise=echo), busy_context="interrupt")
    running = await one.send("1", context="c", at_once=True)
    await soon(first.paused.wait())
    assert answer(await soon(other.send("2", context="c"))) == "re 2"
    assert (await other.get(running.id)).status.state is TaskState.CANCELED
    assert first.broken_off == 1


# --- 135, 136, 109d: who holds a thread -------------------------------------------------------------------------------


@BOTH
async def test_135_the_stale_holder_stores_nothing_even_before_somebody_else_goes_on(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one", lease=LeaseTimes(1000)) as one:
        pause = Pause()
        one.agent(ScriptedAdapter(ownership, [TextDelta("a"), pause, TextDelta("b"), None, *says("c", "r1")]))
        task = await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        await one.get(task.id)
        async with running_core(path, prefix="two", now=START + 10**7) as other:
            other.agent(ScriptedAdapter(ownership, otherwise=echo))
            before = query(path, "SELECT handle, generation FROM thread"), logged(path, task.id)
            pause.go.set()
            await soon(one.runner.idle())
            assert (query(path, "SELECT handle, generation FROM thread"), logged(path, task.id)) == before
            assert query(path, "SELECT count(*) FROM history_item") == [(1,)]
            assert query(path, "SELECT status FROM service_call") == [("unknown",)]
            assert answer(await other.send("2", context="c")) == "re 2"


async def test_135_a_holder_that_comes_back_to_life_in_time_keeps_its_thread(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        pause = Pause()
        one.agent(ScriptedAdapter(G, [pause, *says("a")]))
        other.agent(ScriptedAdapter(G))
        task = await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        looked = other.ledger.slow_read("unfinished_turns")
        other.time.now = LATER
        await soon(looked.reached.wait())
        one.time.now = LATER
        await until(lambda: query(one.path, "SELECT 1 FROM thread WHERE lease_until > ?", LATER))
        looked.go.set()
        await some_upkeeps(other)
        assert (await other.get(task.id)).status.state is TaskState.WORKING
        pause.go.set()
        await soon(one.runner.idle())
        assert answer(await other.get(task.id)) == "a"


@BOTH
async def test_136_when_the_holder_dies_its_turn_ends_and_the_one_that_waits_elsewhere_goes_on(
    tmp_path: Path, ownership: Ownership
) -> None:
    async with two(tmp_path) as (one, other):
        dying = ScriptedAdapter(ownership, says("a", "r1"), [TextDelta("b"), Pause()])
        one.agent(dying)
        second = ScriptedAdapter(ownership, says("c", "r3"))
        other.agent(second)
        await one.send("1", context="c")
        lost = await one.send("2", context="c", at_once=True)
        await soon(dying.paused.wait())
        await one.get(lost.id)
        waiting = await other.stream("3", context="c")
        await one.die()
        await some_upkeeps(other)
        assert second.requests == []
        other.time.now = LATER
        read = await frames(waiting)
        assert states(read) == ["SUBMITTED", "WORKING", "COMPLETED"]
        ended = await other.get(lost.id)
        assert (error_class(ended), answer(ended)) == (RESTARTED, "b")
        assert second.sent == [("r1", ["U 2", "U 3"]) if ownership is BR else (None, ["U 1", "A a", "U 2", "U 3"])]
        order = "SELECT number, status FROM turn ORDER BY number"
        assert query(other.path, order) == [(1, "completed"), (2, "failed"), (3, "completed")]


async def test_109d_a_thread_that_a_dead_process_left_between_two_turns_is_free_when_its_lease_ran_out(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as (one, other):
        pause, never = Pause(), Pause()
        one.agent(ScriptedAdapter(G, [pause, *says("a")], [never]))
        other.agent(ScriptedAdapter(G, otherwise=echo))
        for text in "12":
            await one.send(text, context="c", at_once=True)
        lost = one.ledger.refuse(Prepare, Conflict("another is faster"))
        pause.go.set()
        await soon(lost.wait())
        await one.die()
        other.time.now = LATER
        assert answer(await soon(other.send("3", context="c"))) == "re 3"
        assert query(other.path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)]


# --- 137: cancel ------------------------------------------------------------------------------------------------------


@BOTH
async def test_137_a_cancel_reaches_the_process_that_runs_the_task(
    both: tuple[Core, Core], ownership: Ownership
) -> None:
    one, other = both
    adapter = ScriptedAdapter(ownership, [TextDelta("a"), Pause()])
    one.agent(adapter)
    other.agent(ScriptedAdapter(ownership, otherwise=echo))
    task = await one.send("1", context="c", at_once=True)
    await soon(adapter.paused.wait())
    canceled = await soon(other.cancel(task.id))
    assert (canceled.status.state, answer(canceled)) == (TaskState.CANCELED, "a")
    assert adapter.broken_off == 1
    assert await one.get(task.id) == canceled
    with pytest.raises(TaskNotCancelable):
        await other.cancel(task.id)
    assert answer(await other.send("2", context="c")) == "re 2"


async def test_137_a_cancel_reaches_a_turn_that_waits_elsewhere(both: tuple[Core, Core]) -> None:
    one, other = both
    pause = Pause()
    one.agent(ScriptedAdapter(G, [pause, *says("a")]))
    second = ScriptedAdapter(G)
    other.agent(second)
    await one.send("1", context="c", at_once=True)
    waiting = await other.send("2", context="c", at_once=True)
    assert (await soon(one.cancel(waiting.id))).status.state is TaskState.CANCELED
    pause.go.set()
    await soon(other.runner.idle())
    assert second.requests == []


@pytest.mark.parametrize("ticks", range(0, 30, 3))
async def test_137_of_a_cancel_elsewhere_and_the_completion_exactly_one_wins(tmp_path: Path, ticks: int) -> None:
    async with two(tmp_path) as (one, other):
        pause = Pause()
        one.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
        other.agent(ScriptedAdapter(G))
        task = await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        async with asyncio.TaskGroup() as group:
            canceling = group.create_task(_told(other, task.id))
            for _ in range(ticks):
                await asyncio.sleep(0)
            pause.go.set()
        stored = await other.get(task.id)
        assert stored.status.state is canceling.result()
        assert await one.get(task.id) == stored
        ends = [state for state in states([(None, e) for _, e in logged(one.path, task.id)]) if state != "WORKING"]
        assert ends == [stored.status.state.name]


async def _told(core: Core, task: str) -> TaskState:
    try:
        return (await soon(core.cancel(task))).status.state
    except TaskNotCancelable:
        return TaskState.COMPLETED


async def test_137_a_cancel_of_what_a_dead_process_left_cancels_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other):
        adapter = ScriptedAdapter(G, [Pause()])
        one.agent(adapter)
        other.agent(ScriptedAdapter(G))
        task = await one.send("1", at_once=True)
        await soon(adapter.paused.wait())
        await one.die()
        async with asyncio.TaskGroup() as group:
            canceling = group.create_task(other.cancel(task.id))
            await until(lambda: query(other.path, "SELECT 1 FROM turn WHERE cancel_asked = 1"))
            other.time.now = LATER
        assert canceling.result().status.state is TaskState.CANCELED


async def test_137_a_process_that_does_not_answer_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with (
        running_core(path, prefix="one", lease=LeaseTimes(1000), before=deaf) as one,
        running_core(path, prefix="two", lease=QUICK) as other,
    ):
        adapter = ScriptedAdapter(G, [Pause()])
        one.agent(adapter)
        other.agent(ScriptedAdapter(G))
        task = await one.send("1", at_once=True)
        await soon(adapter.paused.wait())
        with pytest.raises(Busy, match="cannot be canceled now"):
            await soon(other.cancel(task.id))
        assert (await other.get(task.id)).status.state is TaskState.WORKING


# --- 106, 107: watching from the other process ------------------------------------------------------------------------


async def test_106_a_subscriber_in_the_other_process_sees_the_log_as_it_grows_and_ends_with_the_task(
    both: tuple[Core, Core],
) -> None:
    one, other = both
    pause, more = Pause(), Pause()
    one.agent(ScriptedAdapter(G, [TextDelta("a"), pause, TextDelta("b"), more, *says("c")]))
    other.agent(ScriptedAdapter(G))
    task = await one.send("1", at_once=True)
    await soon(pause.reached.wait())
    await one.get(task.id)
    stream = await other.subscribe(task.id)
    batches = aiter(stream)
    read = await soon(anext(batches))
    assert streamed(read) == "a"
    pause.go.set()
    await soon(more.reached.wait())
    read += await soon(anext(batches))
    assert streamed(read) == "ab"
    more.go.set()
    async with asyncio.timeout(BOUND):
        async for batch in batches:
            read += batch
    await stream.aclose()
    assert streamed(read) == "abc"
    assert states(read) == ["WORKING", "COMPLETED"]
    assert read[1:] == logged(one.path, task.id)[1:]


async def test_106_a_resumed_stream_in_the_other_process_has_neither_gap_nor_repeat(both: tuple[Core, Core]) -> None:
    one, other = both
    pause = Pause()
    words = [step for n in range(40) for step in (TextDelta(f"{n} "), None)]
    one.agent(ScriptedAdapter(G, [*words, pause, *words, *says("!")]))
    other.agent(ScriptedAdapter(G))
    task = await one.send("1", at_once=True)
    await soon(pause.reached.wait())
    await one.get(task.id)
    streams = [await other.subscribe(task.id, other.call(last=last)) for last in (0, 7, 40)]
    pause.go.set()
    whole = [(await frames(stream))[1:] for stream in streams]
    log = logged(one.path, task.id)
    assert whole == [log, log[7:], log[40:]]


async def test_106_a_stream_that_is_opened_while_the_task_ends_elsewhere_ends_as_well(both: tuple[Core, Core]) -> None:
    one, other = both
    pause = Pause()
    one.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    other.agent(ScriptedAdapter(G))
    task = await one.send("1", at_once=True)
    await soon(pause.reached.wait())
    read = other.ledger.slow_read("task")
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(other.subscribe(task.id, other.call(last=0)))
        await soon(read.reached.wait())
        pause.go.set()
        await soon(one.runner.idle())
        read.go.set()
    assert (await frames(opening.result()))[1:] == logged(one.path, task.id)


async def test_106_on_a_task_that_waits_a_stream_sees_what_another_process_goes_on_with(
    both: tuple[Core, Core],
) -> None:
    one, other = both
    asks: Script = [TextDelta("which? "), CallCompleted(ending=Ending.INPUT_REQUIRED)]
    one.agent(ScriptedAdapter(G, asks))
    other.agent(ScriptedAdapter(G, otherwise=echo))
    task = await one.send("1")
    async with asyncio.TaskGroup() as group:
        reading = [group.create_task(frames(await core.subscribe(task.id))) for core in (one, other)]
        await other.send("blue", task=task.id)
    for read in reading:
        assert states(read.result()) == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]
        assert streamed(read.result()) == "which? re blue"
        assert read.result()[1:] == logged(one.path, task.id)[2:]


async def test_106_a_stream_on_a_task_whose_process_died_ends_with_its_settlement(tmp_path: Path) -> None:
    async with two(tmp_path) as (one, other), running_core(tmp_path / "ledger.db", prefix="six") as third:
        adapter = ScriptedAdapter(G, [TextDelta("a"), Pause()])
        one.agent(adapter)
        third.agent(ScriptedAdapter(G))
        task = await one.send("1", at_once=True)
        await soon(adapter.paused.wait())
        stream = await third.subscribe(task.id)
        await one.die()
        other.time.now = LATER
        assert states(await frames(stream)) == ["WORKING", "FAILED"]


async def test_107_a_repeat_in_the_other_process_attaches_to_the_running_turn(both: tuple[Core, Core]) -> None:
    one, other = both
    pause = Pause()
    one.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    second = ScriptedAdapter(G)
    other.agent(second)
    task = await one.send("1", one.call(key="k"), at_once=True)
    await soon(pause.reached.wait())
    async with asyncio.TaskGroup() as group:
        blocking = group.create_task(other.send("1", other.call(key="k")))
        streaming = group.create_task(frames(await other.stream("1", other.call(key="k"))))
        at_once = await other.send("1", other.call(key="k"), at_once=True)
        assert (at_once.id, at_once.status.state) == (task.id, TaskState.WORKING)
        assert not blocking.done()
        pause.go.set()
    assert (blocking.result().id, answer(blocking.result())) == (task.id, "ab")
    assert (states(streaming.result()), streamed(streaming.result())) == (["WORKING", "COMPLETED"], "ab")
    assert second.requests == []
    assert query(one.path, "SELECT count(*) FROM input") == [(1,)]


async def test_107_a_repeat_that_waits_for_the_other_process_is_told_to_come_again_when_its_own_drains(
    both: tuple[Core, Core],
) -> None:
    one, other = both
    pause = Pause()
    one.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
    other.agent(ScriptedAdapter(G))
    await one.send("1", one.call(key="k"), at_once=True)
    async with asyncio.TaskGroup() as group:
        blocking = group.create_task(_unanswered(other))
        await until(lambda: other.runner.log_tail.streams)
        other.drain.set()
        await soon(blocking)
        pause.go.set()
    assert answer(await one.send("1", one.call(key="k"))) == "ab"


async def _unanswered(core: Core) -> None:
    with pytest.raises(Unanswered, match="Idempotency-Key"):
        await core.send("1", core.call(key="k"))


async def test_107_a_repeat_in_the_other_process_ends_where_the_agent_asks(both: tuple[Core, Core]) -> None:
    one, other = both
    pause = Pause()
    one.agent(ScriptedAdapter(G, [pause, TextDelta("?"), CallCompleted(ending=Ending.INPUT_REQUIRED)]))
    other.agent(ScriptedAdapter(G))
    await one.send("1", one.call(key="k"), at_once=True)
    stream = await other.stream("1", other.call(key="k"))
    async with asyncio.TaskGroup() as group:
        blocking = group.create_task(other.send("1", other.call(key="k")))
        pause.go.set()
    assert blocking.result().status.state is TaskState.INPUT_REQUIRED
    assert states(await frames(stream)) == ["WORKING", "INPUT_REQUIRED"]


@pytest.mark.parametrize("bare", [True, False])
async def test_107_a_repeat_of_a_message_that_may_get_a_bare_answer_waits_for_it(
    both: tuple[Core, Core], bare: bool
) -> None:
    one, other = both
    pause = Pause()
    reply: Script = [pause, DirectReply((message("hi").parts[0],))] if bare else [pause, *says("hi")]
    for core, script in ((one, reply), (other, [])):
        core.agent(ScriptedAdapter(G, script), direct_replies=True)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_repeated(one))
        await soon(pause.reached.wait())
        repeated = group.create_task(_repeated(other))
        await until(lambda: other.runner.log_tail.streams)
        pause.go.set()
    both_ = [events(read.result()) for read in (first, repeated)]
    if bare:
        assert both_[0] == both_[1]
        assert both_[0][0].message is not None
    else:
        assert streamed(first.result()) == streamed(repeated.result()) == "hi"


async def _repeated(core: Core) -> list[Frame]:
    return await frames(await core.stream("1", core.call(key="k")))


class _Counting:
    """A ledger that counts how often its database is asked for changes."""

    def __init__(self, ledger: FragileLedger) -> None:
        self.looks = 0
        ledger.wrap(self._around)

    def _around(self, inside: Any) -> "_Counting":
        self._inside = inside
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        async def counted() -> None:
            await wanted()
            self.looks += 1

        changes: AsyncGenerator[Changed, None] = self._inside.changes(counted)
        return changes


@pytest.mark.sqlite("PostgreSQL tells of changes, and is not asked")
async def test_106_nobody_asks_the_database_for_others_while_nobody_watches(tmp_path: Path) -> None:
    path, asked, pause = tmp_path / "ledger.db", list[_Counting](), Pause()

    def counted(ledger: FragileLedger) -> None:
        asked.append(_Counting(ledger))

    async with (
        running_core(path, prefix="one", lease=LeaseTimes(5.0, 500), before=counted) as one,
        running_core(path, prefix="two", lease=LeaseTimes(5.0, 500), before=counted) as other,
    ):
        one.agent(ScriptedAdapter(G, [pause, *says("a")], otherwise=echo))
        other.agent(ScriptedAdapter(G))
        stream = await one.stream("1", context="c")
        watching = await one.subscribe("one-0001")
        await some_upkeeps(one)
        assert [each.looks for each in asked] == [0, 0]
        elsewhere = await other.subscribe("one-0001")
        await until(lambda: asked[1].looks)
        pause.go.set()
        for each in (stream, watching, elsewhere):
            await frames(each)
        assert asked[0].looks == 0


# --- 140: delete ------------------------------------------------------------------------------------------------------


async def test_140_deleting_a_context_cancels_its_turn_in_the_other_process_first(both: tuple[Core, Core]) -> None:
    one, other = both
    adapter = ScriptedAdapter(BR, [TextDelta("a"), Pause()])
    agent = one.agent(adapter)
    other.agent(ScriptedAdapter(BR))
    stream = await one.stream("1", context="c")
    await soon(adapter.paused.wait())
    watching = await other.subscribe("one-0001")
    contexts = Contexts(other.ledger, other.runner, other.fanout, other.time.clock, other.drain)
    await soon(contexts.delete(other.call().caller, "c"))
    assert states(await frames(stream)) == ["WORKING", "CANCELED"]
    assert states(await frames(watching))[0] == "WORKING"
    assert adapter.broken_off == 1
    assert query(one.path, "SELECT count(*) FROM turn") == [(0,)]
    with pytest.raises(NotFound):
        await contexts.delete(other.call().caller, "c", agent)


async def test_140_who_waits_for_another_process_to_end_a_turn_hears_at_a_drain_that_nothing_is_done(
    tmp_path: Path,
) -> None:
    path, lease = tmp_path / "ledger.db", LeaseTimes(1000)
    async with (
        running_core(path, prefix="one", lease=lease, before=deaf) as one,
        running_core(path, prefix="two", lease=lease) as other,
    ):
        pause = Pause()
        one.agent(ScriptedAdapter(BR, [pause, *says("a")]))
        other.agent(ScriptedAdapter(BR))
        await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        contexts = Contexts(other.ledger, other.runner, other.fanout, other.time.clock, other.drain)
        async with asyncio.TaskGroup() as group:
            waits = [
                group.create_task(_busy(contexts.delete(other.call().caller, "c"))),
                group.create_task(_busy(other.cancel("one-0001"))),
            ]
            await until(lambda: len(other.drain.over.callbacks) == len(waits))
            other.drain.set()
            other.drain.over.set()
            for wait in waits:
                assert await soon(wait)
        assert (await other.get("one-0001")).status.state is TaskState.WORKING
        pause.go.set()
        await soon(one.runner.idle())


async def _busy(asked: Awaitable[object]) -> str:
    with pytest.raises(Busy) as caught:
        await asked
    return caught.value.message


async def test_140_what_a_process_that_stood_still_says_of_a_deleted_context_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with (
        running_core(path, prefix="one", lease=LeaseTimes(1000), before=deaf) as one,
        running_core(path, prefix="two", lease=QUICK) as other,
    ):
        pause = Pause()
        other.agent(ScriptedAdapter(BR))
        one.agent(ScriptedAdapter(BR, [TextDelta("a"), pause, TextDelta("b"), None, *says("c", "r1")]))
        stream = await one.stream("1", context="c")
        await soon(pause.reached.wait())
        contexts = Contexts(other.ledger, other.runner, other.fanout, other.time.clock, other.drain)
        await soon(contexts.delete(other.call().caller, "c"))
        pause.go.set()
        await soon(one.runner.idle())
        read, error = await broken_off(stream)
        assert isinstance(error, Busy)
        assert states(read) == ["WORKING"]
        assert numbers(read) == [0, 1]
        for table in ("turn", "task", "event", "history_item", "service_call", "input"):
            assert query(path, f"SELECT count(*) FROM {table}") == [(0,)]
        assert query(path, "SELECT state, handle FROM thread") == [("deleted", None)]
