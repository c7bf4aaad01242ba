"""Agents that may answer with a bare message: who was told of a task finds it in every process, and nobody else sees it.
Source: docs/state-model.md, scenario 102b."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.a2a.errors import TaskNotFound, Unanswered, UnsupportedOperation
from gateway.a2a.model import (
    Message,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    TaskState,
)
from gateway.a2a.tool_calls import Visibility
from gateway.ledger.calls import RESTARTED
from gateway.ledger.leases import TRIES
from gateway.ledger.tasks import Append, Reveal
from gateway.ports.adapter import CallStarted, DirectReply, Progress, TextDelta
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.scenarios.test_approvals import GATED, PAY, one, reply, yes
from tests.scenarios.test_quarantine import Poisoned, rounds, turn_of
from tests.scenarios.test_quarantine import survivor as troubled
from tests.scenarios.test_recovery_continues import ONCE, survivor
from tests.scenarios.test_tool_loop import asks, call
from tests.support.core import (
    Core,
    answer,
    error_class,
    events,
    frames,
    message,
    query,
    running_core,
    soon,
    states,
    streamed,
    until,
)
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

PONG = DirectReply((Part(text="pong"),))
HIDDEN = Visibility(exposure="none")


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Core, Core]]:
    """Two processes on one database."""
    path, lease = tmp_path / "ledger.db", LeaseTimes(5.0, 500)
    async with (
        running_core(path, prefix="one", lease=lease) as one,
        running_core(path, prefix="two", lease=lease) as other,
    ):
        yield one, other


async def sent(core: Core, *, key: str | None = None, at_once: bool = False) -> SendMessageResponse:
    configuration = SendMessageConfiguration(return_immediately=at_once)
    request = SendMessageRequest(message=message("hi", context="c"), configuration=configuration)
    return await core.operations.send_message(core.call(key=key), request)


async def knows_of_none(core: Core, task: str) -> bool:
    for operation in (core.get, core.cancel, core.subscribe):
        with pytest.raises(TaskNotFound):
            await operation(task)
    return (await core.list()).tasks == ()


async def left_behind(path: Path, *script: Progress | TextDelta, told: bool) -> str:
    """The task whose process died behind this output. `told`: the caller had been told of the task."""
    pause = Pause()
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(ONCE, [*script, pause]), direct_replies=True)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(_unless_left(core))
            await soon(pause.reached.wait())
            if told:
                assert (await soon(sending)) is not None
            await core.die()
    [(task,)] = query(path, "SELECT id FROM task")
    return str(task)


async def _unless_left(core: Core) -> SendMessageResponse | None:
    try:
        return await sent(core, key="k", at_once=True)
    except Unanswered:
        return None


# --- who was told ---


@pytest.mark.parametrize("first", [TextDelta("a"), Progress("looking")], ids=["text", "progress"])
async def test_102b_who_was_told_of_a_task_finds_it_in_the_other_process(
    both: tuple[Core, Core], first: TextDelta | Progress
) -> None:
    here, other = both
    pause = Pause()
    here.agent(ScriptedAdapter(G, [first, pause, *says("b")]), direct_replies=True)
    other.agent(ScriptedAdapter(G), direct_replies=True)
    task = (await sent(here, at_once=True)).task
    assert task is not None
    for core in both:
        assert [each.id for each in (await core.list()).tasks] == [task.id]
        assert (await core.get(task.id)).status.state is TaskState.WORKING
    watching = await other.subscribe(task.id)
    pause.go.set()
    assert states(await frames(watching))[-1] == "COMPLETED"


async def test_102b_who_was_told_of_a_task_can_cancel_it_in_the_other_process(both: tuple[Core, Core]) -> None:
    here, other = both
    here.agent(ScriptedAdapter(G, [TextDelta("a"), Pause()]), direct_replies=True)
    other.agent(ScriptedAdapter(G), direct_replies=True)
    stream = await here.stream("hi")
    [first] = events(await soon(anext(aiter(stream))))
    assert first.task is not None
    assert (await soon(other.cancel(first.task.id))).status.state is TaskState.CANCELED
    await stream.aclose()


@pytest.mark.parametrize("streaming", [False, True], ids=["send", "stream"])
async def test_102b_a_caller_is_told_of_a_task_when_that_is_stored(core: Core, streaming: bool) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]), direct_replies=True)
    gate = core.ledger.hold(Append)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(core.stream("hi") if streaming else core.send("hi", at_once=True))
        await soon(gate.reached.wait())
        await soon(asyncio.wait([sending], timeout=0))
        assert not sending.done()
        assert await knows_of_none(core, "id-0001")
        core.ledger.let_go()
        await soon(asyncio.wait([sending]))
        pause.go.set()
    assert (await core.list()).total_size == 1


async def test_102b_a_task_that_could_not_be_stored_is_told_to_nobody_and_ends_later(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, lease=LeaseTimes(0.05)) as core:
        core.agent(ScriptedAdapter(G, [TextDelta("a"), None, None, *says("b")]), direct_replies=True)
        core.ledger.refuse(Append)
        with pytest.raises(Unanswered, match="Idempotency-Key"):
            await soon(sent(core, key="k", at_once=True))
        again = await soon(sent(core, key="k"))
        assert again.task is not None
        assert (error_class(again.task), await core.get(again.task.id)) == (RESTARTED, again.task)
    assert violations(path) == []


@pytest.mark.parametrize("now", ["at once", "when its lease has run out"])
async def test_102b_who_was_told_of_a_task_finds_it_when_its_process_was_killed(tmp_path: Path, now: str) -> None:
    path = tmp_path / "ledger.db"
    task = await left_behind(path, TextDelta("a"), told=True)
    adapter = ScriptedAdapter(ONCE)
    if now == "at once":
        async with running_core(path, prefix="two", adapter=adapter, direct_replies=True) as core:
            assert answer(await core.get(task)) == "a"
            assert [each.id for each in (await core.list()).tasks] == [task]
            await (await core.subscribe(task)).aclose()
        return
    async with survivor(path, adapter, direct_replies=True) as core:
        await soon(core.runner.idle())
        failed = await core.get(task)
        assert (error_class(failed), answer(failed)) == (RESTARTED, "a")
        assert [each.id for each in (await core.list()).tasks] == [task]
    assert violations(path) == []


async def test_102b_a_bare_message_does_not_take_the_place_of_a_task_that_was_told_before_a_crash(
    tmp_path: Path,
) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    begun: Script = [CallStarted("r1"), Progress("looking"), pause]
    async with running_core(path, prefix="one") as core:
        core.agent(ResumingAdapter(begun), direct_replies=True)
        told = (await sent(core, at_once=True)).task
        await soon(pause.reached.wait())
    assert told is not None
    again = ResumingAdapter(again=[[CallStarted("r1"), PONG]])
    async with survivor(path, again, direct_replies=True) as core:
        await soon(core.runner.idle())
        assert again.resumed == ["r1"]
        assert error_class(await core.get(told.id)) == "contract-broken"
        assert (await core.list()).total_size == 1
    assert violations(path) == []


async def test_102b_a_bare_message_does_not_take_the_place_of_a_task_that_asked(core: Core) -> None:
    tools = ScriptedTools({"pay": "paid"})
    adapter = ScriptedAdapter(G, asks("r", PAY), [PONG])
    core.agent(adapter, toolset=tools, approvals=GATED, tool_calls=HIDDEN, direct_replies=True)
    asked = await core.send("buy it", context="c")
    done = await reply(core, asked.id, yes(one(asked)))
    assert (done.id, error_class(done)) == (asked.id, "contract-broken")
    assert await core.get(asked.id) == done
    assert (await core.list()).total_size == 1


async def test_102b_a_task_that_is_put_aside_is_known_to_the_caller_who_is_told_to_cancel_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    bad = await left_behind(path, told=False)
    poison = Poisoned("open_tool_calls", turn_of(path, bad))
    async with troubled(path, poison, ScriptedAdapter(ONCE, [PONG]), direct_replies=True) as core:
        await rounds(core, TRIES + 4)
        with pytest.raises(UnsupportedOperation, match=bad):
            await sent(core)
        assert [each.id for each in (await core.list()).tasks] == [bad]
        poison.bad.clear()
        assert (await core.cancel(bad)).status.state is TaskState.CANCELED
        assert (await sent(core)).message is not None


# --- who was not told ---


async def test_102b_a_task_that_is_none_yet_is_seen_by_nobody(both: tuple[Core, Core]) -> None:
    here, other = both
    pause = Pause()
    here.agent(ScriptedAdapter(G, [CallStarted("r1"), pause, PONG]), direct_replies=True)
    other.agent(ScriptedAdapter(G), direct_replies=True)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(sent(here, at_once=True))
        await soon(pause.reached.wait())
        assert [await knows_of_none(core, "one-0001") for core in both] == [True, True]
        pause.go.set()
    assert sending.result().message is not None
    assert [await knows_of_none(core, "one-0001") for core in both] == [True, True]


async def test_102b_a_message_whose_process_died_before_an_answer_has_an_outcome_under_its_key(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task = await left_behind(path, told=False)
    async with running_core(path, prefix="two", adapter=ScriptedAdapter(ONCE), direct_replies=True) as core:
        assert await knows_of_none(core, task)
    async with survivor(path, ScriptedAdapter(ONCE), direct_replies=True) as core:
        await soon(core.runner.idle())
        failed = (await sent(core, key="k")).task
        assert failed is not None
        assert (failed.id, error_class(failed)) == (task, RESTARTED)
        assert await core.get(task) == failed


@pytest.mark.parametrize("streaming", [False, True], ids=["send", "stream"])
async def test_102b_a_process_that_stops_before_the_agent_has_decided_tells_of_no_task(
    tmp_path: Path, streaming: bool
) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(G, [pause]), direct_replies=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(_refused(core, streaming=streaming))
            await soon(pause.reached.wait())
            await core.die()
    assert query(path, "SELECT visible FROM task") == [(0,)]


async def _refused(core: Core, *, streaming: bool) -> None:
    with pytest.raises(Unanswered, match="Idempotency-Key"):
        await (core.stream("hi") if streaming else core.send("hi"))


async def test_102b_a_turn_that_waited_may_be_answered_by_a_bare_message_in_the_process_that_takes_it_up(
    tmp_path: Path,
) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(G, [TextDelta("a"), pause]), direct_replies=True)
        await sent(core, at_once=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(_unless_left(core))
            await until(lambda: query(path, "SELECT count(*) FROM task") == [(2,)])
            await core.die()
    async with survivor(path, ScriptedAdapter(G, [PONG]), direct_replies=True) as core:
        await soon(core.runner.idle())
        assert _words((await sent(core, key="k")).message) == "pong"
        assert (await core.list()).total_size == 1


def _words(said: Message | None) -> str | None:
    return None if said is None else said.parts[0].text


async def test_102b_a_tool_round_that_nobody_sees_leaves_a_bare_message_possible(core: Core) -> None:
    adapter = ScriptedAdapter(G, asks("r", call("c1", "look")), [PONG])
    core.agent(adapter, toolset=ScriptedTools({"look": "seen"}), tool_calls=HIDDEN, direct_replies=True)
    assert _words((await sent(core)).message) == "pong"
    assert (await core.list()).total_size == 0


# --- repeats in another process ---


async def test_107_a_repeat_that_returns_at_once_does_so_in_the_other_process_when_there_is_a_task(
    both: tuple[Core, Core],
) -> None:
    here, other = both
    first, second = Pause(), Pause()
    here.agent(ScriptedAdapter(G, [first, TextDelta("a"), second, *says("b")]), direct_replies=True)
    other.agent(ScriptedAdapter(G), direct_replies=True)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(sent(here, key="k", at_once=True))
        await soon(first.reached.wait())
        repeated = group.create_task(sent(other, key="k", at_once=True))
        streaming = group.create_task(other.stream("hi", other.call(key="k"), context="c"))
        await until(lambda: len(other.runner.log_tail.streams) == 2)
        first.go.set()
        await soon(asyncio.wait([sending, repeated, streaming]))
        assert not second.go.is_set()
        second.go.set()
    told, again = sending.result().task, repeated.result().task
    assert told is not None
    assert again is not None
    assert (again.id, again.status.state) == (told.id, TaskState.WORKING)
    assert streamed(await frames(streaming.result())) == "ab"


async def test_107_a_repeat_that_waits_in_the_other_process_for_an_answer_waits_no_longer_than_that_process(
    tmp_path: Path,
) -> None:
    path, pause, lease = tmp_path / "ledger.db", Pause(), LeaseTimes(5.0, 500)
    async with running_core(path, prefix="one", lease=lease) as here:
        here.agent(ScriptedAdapter(G, [pause]), direct_replies=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(_unless_left(here))
            await soon(pause.reached.wait())
            async with running_core(path, prefix="two", lease=lease) as other:
                other.agent(ScriptedAdapter(G), direct_replies=True)
                repeated = group.create_task(_unless_left(other))
                await until(lambda: other.runner.log_tail.streams)
                other.fanout.close(str(query(path, "SELECT id FROM task")[0][0]))
                assert await soon(repeated) is None
            await here.die()


# --- what is stored ---


async def test_102b_the_mark_that_there_is_a_task_is_stored_with_its_first_event(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [Progress("looking"), None, None, *says("a")]), direct_replies=True)
    await core.send("hi")
    marked = [points for points in core.ledger.units if any(isinstance(point, Reveal) for point in points)]
    assert [[type(point) for point in points] for points in marked] == [[Reveal, Append]]


async def test_102b_an_agent_that_never_answers_with_a_bare_message_needs_no_mark(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [Progress("looking"), None, None, *says("a")]))
    await core.send("hi")
    assert core.ledger.stored(Reveal) == []


# --- conversations of the backend


@pytest.mark.parametrize(("ownership", "handle"), [(BR, "r1"), (BS, "c")], ids=["BR", "BS"])
async def test_a_bare_message_with_a_handle_goes_on_there_and_nothing_is_said_twice(
    core: Core, ownership: Ownership, handle: str
) -> None:
    bare: Script = [CallStarted(handle), DirectReply(PONG.parts, {"n": 1}, handle)]
    following: Script = [DirectReply(PONG.parts, {"n": 2}, "r2" if ownership is BR else None)]
    adapter = ScriptedAdapter(ownership, bare, following, says("done", "r3" if ownership is BR else "c"))
    core.agent(adapter, direct_replies=True)
    for _ in range(2):
        assert (await sent(core)).message is not None
    task = await core.send("bye", context="c")
    assert task.status.state is TaskState.COMPLETED
    assert adapter.sent == [
        (None, ["U hi"]),
        (handle, ["U hi"]),
        ("r2" if ownership is BR else "c", ["U bye"]),
    ]
    assert [request.state for request in adapter.requests] == [None, {"n": 1}, {"n": 2}]
    assert violations(core.path) == []


async def test_a_bare_message_under_another_static_handle_breaks_the_contract(core: Core) -> None:
    core.agent(ScriptedAdapter(BS, says("one", "c"), [DirectReply(PONG.parts, None, "d")]), direct_replies=True)
    await core.send("1", context="c")
    assert error_class(await core.send("2", context="c")) == "contract-broken"
