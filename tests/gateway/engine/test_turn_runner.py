"""A turn from its beginning to its end: faults become states, and exactly one ending wins."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.errors import TaskNotCancelable, Unanswered
from gateway.a2a.model import Task, TaskState
from gateway.core.failures import INTERNAL, TURN_TIMEOUT, safe_text
from gateway.ledger.calls import Prepare
from gateway.ledger.tasks import Finish
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, Ending, ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import (
    CORRELATION_ID,
    Core,
    answer,
    frames,
    numbers,
    outcome,
    query,
    reason,
    running_core,
    soon,
    states,
    until,
)
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says

SECRET = "sk-do-not-tell"
QUICK = LeaseTimes(length=0.03)
BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])


@pytest.mark.parametrize("kind", list(ErrorClass))
@BOTH
async def test_a_call_that_fails_ends_the_turn_with_a_safe_text(
    core: Core, ownership: Ownership, kind: ErrorClass
) -> None:
    core.agent(ScriptedAdapter(ownership, otherwise=lambda _: [AdapterError(kind, SECRET)]))
    task = await core.send("hi")
    assert reason(task) == safe_text(kind, CORRELATION_ID)
    assert task.status.message is not None
    refused = {"refused": "message"} if kind.meaning.refuses_content else {}
    assert task.status.message.metadata == {"correlationId": CORRELATION_ID, "errorClass": str(kind), **refused}
    assert await core.get(task.id) == task
    calls = query(core.path, "SELECT DISTINCT status, error_class, handle_out FROM service_call")
    assert calls == [("failed", kind, None)]


async def test_a_fault_in_an_adapter_is_internal_and_its_text_is_not_shown(
    core: Core, capsys: pytest.CaptureFixture[str]
) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), RuntimeError(SECRET)]))
    task = await core.send("hi")
    assert reason(task) == safe_text(INTERNAL, CORRELATION_ID)
    assert answer(task) == "a"


async def test_a_turn_that_takes_too_long_fails(core: Core) -> None:
    adapter = ScriptedAdapter(G, [TextDelta("a"), Pause()])
    core.agent(adapter, turn_timeout=0.5)
    task = await core.send("hi")
    assert reason(task) == safe_text(TURN_TIMEOUT, CORRELATION_ID)
    assert answer(task) == "a"
    assert adapter.broken_off == 1


async def test_an_answer_that_waits_for_another_task_of_its_context_does_not_begin_twice(core: Core) -> None:
    pause = Pause()
    asks = [CallCompleted(ending=Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(G, asks, [pause, *says("other")], says("blue")))
    asked = await core.send("paint", context="c")
    await core.send("meanwhile", context="c", at_once=True)
    stream = await core.stream("blue", task=asked.id)
    pause.go.set()
    read = await frames(stream)
    assert (numbers(read), states(read)) == ([2, 3, 4], ["WORKING", "COMPLETED"])


LOSS = object()
"""The adapter goes on when the ledger has refused the unit before."""

FAULTS: dict[str, list[Any]] = {
    "that cancels itself": [asyncio.CancelledError()],
    "whose text is none": [TextDelta("\ud800")],
    "whose handle is none": [CallStarted("\ud800"), LOSS, TextDelta("b")],
    "whose state is none": [CallCompleted("r1", state=object())],
    "whose usage is none": [CallCompleted("r1", usage={"\ud800": 1})],
}


async def ending(core: Core, words: str) -> Task:
    """The task of a message when its turn has ended, also where not even its failure could be stored with it."""
    try:
        return await core.send(words, context="c")
    except Unanswered as error:
        lost = (error.metadata or {})["taskId"]
    await until(lambda: query(core.path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)])
    return await core.get(lost)


@pytest.mark.parametrize("which", FAULTS)
async def test_an_adapter_that_gives_what_cannot_be_stored_fails_its_turn_and_no_other(
    tmp_path: Path, which: str
) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        loss = Pause()
        fault = [loss if step is LOSS else step for step in FAULTS[which]]
        adapter = ScriptedAdapter(BR, [TextDelta("a"), None, *fault, *says("!", "r1")], says("b", "r2"))
        core.agent(adapter)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(ending(core, "1"))
            if loss in fault:
                await soon(loss.reached.wait())
                await until(lambda: core.ledger.failed)
                loss.go.set()
        task = sending.result()
        assert reason(task).endswith(f"(correlation id {CORRELATION_ID})")
        assert answer(task) == "a"
        assert answer(await core.send("2", context="c")) == "b"
        assert adapter.sent[1] == (None, ["U 1", "U 2"])


# --- cancel against everything else ---


@BOTH
async def test_a_cancel_that_comes_before_the_first_step_wins(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, says("b", "r1"))
    core.agent(adapter)
    gate = core.ledger.hold(Prepare)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(core.send("1", context="c"))
        await soon(gate.reached.wait())
        core.ledger.let_go()
        await until(lambda: core.runner.run_of("id-0001") is not None)
        task = await core.cancel("id-0001")
    assert task.status.state is TaskState.CANCELED
    assert sending.result() == task
    assert adapter.requests == []
    assert answer(await core.send("2", context="c")) == "b"
    assert adapter.sent == [(None, ["U 1", "U 2"])]


async def test_a_cancel_during_the_preparation_wins_and_the_next_turn_need_not_wait(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [pause, *says("a")], says("c"))
    core.agent(adapter)
    await core.send("1", context="c", at_once=True)
    second = await core.send("2", context="c", at_once=True)
    third = await core.send("3", context="c", at_once=True)
    gate = core.ledger.hold(Prepare)
    pause.go.set()
    await soon(gate.reached.wait())
    async with asyncio.TaskGroup() as group:
        canceling = group.create_task(core.cancel(second.id))
        await asyncio.sleep(0)
        core.ledger.let_go()
    assert canceling.result().status.state is TaskState.CANCELED
    await soon(core.runner.idle())
    assert answer(await core.get(third.id)) == "c"
    assert [request.message.parts[0].text for request in adapter.requests] == ["1", "3"]
    assert len(core.ledger.stored(Prepare)) == 3
    assert query(core.path, "SELECT status FROM service_call ORDER BY id") == [
        ("completed",),
        ("failed",),
        ("completed",),
    ]


@BOTH
async def test_a_cancel_that_comes_while_the_end_is_stored_loses(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, says("a", "r1"), says("b", "r2"))
    core.agent(adapter)
    gate = core.ledger.hold(Finish)
    stream = await core.stream("1", context="c")
    await soon(gate.reached.wait())
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(core.subscribe("id-0001"))
        canceling = [group.create_task(_refused(core, "id-0001")) for _ in range(2)]
        await asyncio.sleep(0)
        next_one = group.create_task(core.send("2", context="c"))
        await until(lambda: len(gate.waiting) == 3)
        core.ledger.let_go()
    assert [task.result() for task in canceling] == [TaskState.COMPLETED] * 2
    assert states(await frames(stream)) == ["WORKING", "COMPLETED"]
    assert states(await frames(watching.result())) == ["WORKING", "COMPLETED"]
    assert answer(next_one.result()) == "b"
    assert adapter.sent[1] == (("r1", ["U 2"]) if ownership is BR else (None, ["U 1", "A a", "U 2"]))


async def _refused(core: Core, task: str) -> TaskState:
    with pytest.raises(TaskNotCancelable):
        await core.cancel(task)
    return (await core.get(task)).status.state


async def test_all_that_cancel_at_once_see_the_same(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [TextDelta("a"), pause]))
    await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    async with asyncio.TaskGroup() as group:
        canceling = [group.create_task(core.cancel("id-0001")) for _ in range(4)]
    assert len({task.result() for task in canceling if hash(task.result().id)}) == 1
    assert len(core.ledger.stored(Finish)) == 1


async def test_all_that_cancel_a_waiting_turn_at_once_see_the_same(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]))
    await core.send("1", context="c", at_once=True)
    waiting = await core.send("2", context="c", at_once=True)
    async with asyncio.TaskGroup() as group:
        canceling = [group.create_task(core.cancel(waiting.id)) for _ in range(4)]
    assert {task.result().status.state for task in canceling} == {TaskState.CANCELED}
    assert len(core.ledger.stored(Finish)) == 1
    pause.go.set()


async def test_a_cancel_goes_on_when_its_caller_disconnects(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]))
    first = await core.send("1", context="c", at_once=True)
    waiting = await core.send("2", context="c", at_once=True)
    gate = core.ledger.hold(Finish)
    async with asyncio.TaskGroup() as group:
        canceling = group.create_task(core.cancel(waiting.id))
        await soon(gate.reached.wait())
        canceling.cancel()
    core.ledger.let_go()
    pause.go.set()
    await soon(core.runner.idle())
    assert (await core.get(waiting.id)).status.state is TaskState.CANCELED
    assert (await core.get(first.id)).status.state is TaskState.COMPLETED


async def test_a_cancel_that_comes_when_the_agent_asks_ends_the_task_that_waits(core: Core) -> None:
    asks = [CallCompleted("r", Ending.INPUT_REQUIRED)]
    core.agent(ScriptedAdapter(G, asks))
    gate = core.ledger.hold(Finish)
    stream = await core.stream("1", context="c")
    await soon(gate.reached.wait())
    async with asyncio.TaskGroup() as group:
        canceling = group.create_task(core.cancel("id-0001"))
        await asyncio.sleep(0)
        core.ledger.let_go()
    assert canceling.result().status.state is TaskState.CANCELED
    assert states(await frames(stream))[:2] == ["WORKING", "INPUT_REQUIRED"]


async def test_a_cancel_and_an_answer_that_come_together_leave_one_ending(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [CallCompleted("r", Ending.INPUT_REQUIRED)], otherwise=lambda _: says("b")))
    asked = await core.send("1", context="c")
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(outcome(core.send("2", task=asked.id)))
        canceling = group.create_task(outcome(core.cancel(asked.id)))
    end = (await core.get(asked.id)).status.state
    assert end in {TaskState.COMPLETED, TaskState.CANCELED}
    told = {outcome for outcome in (sending.result(), canceling.result()) if isinstance(outcome, TaskState)}
    assert told == {end}
    assert query(core.path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)]


async def test_a_cancel_that_an_answer_overtook_cancels_the_turn_that_it_opened(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [CallCompleted("r", Ending.INPUT_REQUIRED)], [TextDelta("b"), pause]))
    asked = await core.send("1")
    reading = core.ledger.slow_read("task")
    async with asyncio.TaskGroup() as group:
        canceling = group.create_task(core.cancel(asked.id))
        await soon(reading.reached.wait())
        await core.send("2", task=asked.id, at_once=True)
        await soon(pause.reached.wait())
        reading.go.set()
    assert (canceling.result().status.state, answer(canceling.result())) == (TaskState.CANCELED, "b")
