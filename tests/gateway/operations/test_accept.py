"""Accepting messages: races, queues, and callers that disconnect meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.errors import A2AError, Busy, UnsupportedOperation
from gateway.a2a.model import Task, TaskState
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.tasks import Finish
from gateway.ledger.turns import Accept
from gateway.ports.adapter import CallCompleted, Ending, ServiceRequest
from gateway.ports.conversation import Ownership
from tests.support.core import Core, answer, frames, query, running_core, said, soon, states
from tests.support.rows import change
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
ASKS = [CallCompleted("r1", Ending.INPUT_REQUIRED)]


def echo(request: ServiceRequest) -> Script:
    text = request.message.parts[0].text
    return [None, *says(f"re {text}", f"r-{text}")]


async def outcome(what: Any) -> Task | str:
    try:
        task: Task = await what
    except (A2AError, LedgerUnavailable) as error:
        return type(error).__name__
    return task


# --- a caller who goes away ---


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "send"])
async def test_a_message_runs_although_its_caller_disconnected_while_it_was_stored(core: Core, stream: bool) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    gate = core.ledger.hold(Accept)
    async with asyncio.TaskGroup() as group:
        asking: asyncio.Task[object] = group.create_task((core.stream if stream else core.send)("hi", context="c"))
        await soon(gate.reached.wait())
        asking.cancel()
        await asyncio.sleep(0)
        core.ledger.let_go()
    await soon(core.runner.idle())
    [task] = (await core.list(include_artifacts=True)).tasks
    assert answer(task) == "re hi"
    assert not core.fanout.open(task.id).watched


async def test_a_message_that_was_not_stored_and_whose_caller_disconnected_has_no_effect(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    gate = core.ledger.hold(Accept)
    core.ledger.refuse(Accept)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(outcome(core.send("hi", context="c")))
        await soon(gate.reached.wait())
        asking.cancel()
        await asyncio.sleep(0)
        core.ledger.let_go()
        await soon(asyncio.wait([asking]))
    assert (await core.list()).total_size == 0
    assert core.runner.queued("any") == 0
    assert answer(await core.send("ho", context="c")) == "re ho"


# --- races for one context ---


@BOTH
async def test_first_messages_of_one_context_that_race_make_one_thread(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, otherwise=echo)
    core.agent(adapter)
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(core.send(str(n), context="c")) for n in range(4)]
    assert [answer(task.result()) for task in sending] == [f"re {n}" for n in range(4)]
    assert query(core.path, "SELECT count(*) FROM context UNION ALL SELECT count(*) FROM thread") == [(1,), (1,)]
    order = [request.message.parts[0].text for request in adapter.requests]
    if ownership is BR:
        assert [handle for handle, _ in adapter.sent] == [None, *(f"r-{text}" for text in order[:-1])]
        assert [items for _, items in adapter.sent] == [[f"U {text}"] for text in order]
    else:
        said_before = [word for text in order[:-1] for word in (f"U {text}", f"A re {text}")]
        assert adapter.sent[-1][1] == [*said_before, f"U {order[-1]}"]


async def test_a_caller_that_loses_every_race_is_asked_to_come_back(core: Core) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    core.agent(adapter)
    for _ in range(4):
        core.ledger.refuse(Accept, Conflict("somebody was faster"))
    with pytest.raises(Busy, match="being changed by another request") as caught:
        await core.send("hi", context="c")
    assert caught.value.retry_after == 1
    assert adapter.requests == []
    assert answer(await core.send("hi", context="c")) == "re hi"


async def test_eight_at_once_with_one_key_get_one_task(core: Core) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    core.agent(adapter)
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(core.send("hi", core.call(key="k"))) for _ in range(8)]
    assert len({task.result().id for task in sending}) == 1
    assert len({answer(task.result()) for task in sending}) == 1
    assert len(adapter.requests) == 1
    assert (await core.list()).total_size == 1


async def test_two_different_messages_at_once_with_one_key_are_one_task_and_one_refusal(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(outcome(core.send(text, core.call(key="k")))) for text in ("hi", "ho")]
    assert sorted(type(task.result()).__name__ for task in sending) == ["Task", "str"]
    assert "InvalidParams" in [task.result() for task in sending]
    assert (await core.list()).total_size == 1


async def test_of_two_answers_to_one_question_one_is_taken(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS, otherwise=echo))
    asked = await core.send("paint")
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(outcome(core.send(text, task=asked.id))) for text in ("blue", "red")]
    results = [task.result() for task in sending]
    [taken] = [result for result in results if isinstance(result, Task)]
    assert "UnsupportedOperation" in results
    assert len(said(taken)) == 2
    assert query(core.path, "SELECT count(*) FROM turn") == [(2,)]


# --- a context at work ---


async def test_a_message_to_a_running_task_is_refused(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]))
    task = await core.send("1", at_once=True)
    with pytest.raises(UnsupportedOperation, match="is still at work") as caught:
        await core.send("2", task=task.id)
    assert caught.value.metadata == {"taskId": task.id}
    pause.go.set()
    await soon(core.runner.idle())
    assert said(await core.get(task.id)) == ["U 1"]


async def test_a_message_of_a2a_0_3_to_a_running_task_waits_for_the_end_of_its_turn(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *ASKS], otherwise=echo))
    task = await core.send("1", at_once=True)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(core.send("2", replace(core.call(), version="0.3"), task=task.id))
        await soon(asyncio.wait([sending], timeout=0))
        pause.go.set()
    assert said(sending.result()) == ["U 1", "U 2"]
    assert answer(sending.result()) == "re 2"


async def test_a_message_of_a2a_0_3_is_refused_when_the_task_that_it_waits_for_has_ended(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]))
    task = await core.send("1", at_once=True)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(outcome(core.send("2", replace(core.call(), version="0.3"), task=task.id)))
        await soon(asyncio.wait([sending], timeout=0))
        pause.go.set()
    assert sending.result() == "UnsupportedOperation"


async def test_so_many_messages_of_a2a_0_3_wait_for_the_end_of_a_turn_and_no_more(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]), queued_turns=2)
    task = await core.send("1", at_once=True)
    old = replace(core.call(), version="0.3")
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(outcome(core.send(text, old, task=task.id))) for text in "23"]
        await soon(asyncio.wait(waiting, timeout=0))
        with pytest.raises(UnsupportedOperation, match="is still at work"):
            await core.send("4", old, task=task.id)
        pause.go.set()
    assert [each.result() for each in waiting] == ["UnsupportedOperation"] * 2


async def test_a_context_takes_so_many_messages_and_no_more(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], otherwise=echo), queued_turns=2)
    for text in "123":
        await core.send(text, context="c", at_once=True)
    with pytest.raises(Busy, match="at work on a message, with 2 waiting behind it already") as caught:
        await core.send("4", context="c")
    assert caught.value.retry_after == 5
    assert (await core.list()).total_size == 3
    assert answer(await core.send("1", context="other")) == "re 1"
    pause.go.set()
    await soon(core.runner.idle())
    assert answer(await core.send("5", context="c")) == "re 5"


@pytest.mark.parametrize(("policy", "accepted"), [({"busy_context": "reject"}, 1), ({"queued_turns": 1}, 2)])
async def test_messages_that_arrive_together_are_counted_together(
    core: Core, policy: dict[str, Any], accepted: int
) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, otherwise=echo)
    core.agent(adapter, **policy)
    await core.send("0", context="c")
    gate = core.ledger.hold(Accept)
    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(outcome(core.send(str(n), context="c"))) for n in range(1, 5)]
        await soon(gate.reached.wait())
        refused = asyncio.as_completed(sending)
        for _ in range(4 - accepted):
            assert await soon(next(refused)) == "Busy"
        core.ledger.let_go()
        pause.go.set()
    assert len(adapter.requests) == 1 + accepted


async def test_a_context_that_was_refused_while_busy_is_open_afterwards(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], otherwise=echo), busy_context="reject")
    await core.send("1", context="c", at_once=True)
    with pytest.raises(Busy, match="at work on another message"):
        await core.send("2", context="c")
    pause.go.set()
    await soon(core.runner.idle())
    assert answer(await core.send("3", context="c")) == "re 3"


# --- contexts that cannot go on ---


async def test_a_thread_with_another_owner_of_its_history_is_refused(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=echo))
    await core.send("1", context="c")
    core.agent(ScriptedAdapter(G, otherwise=echo))
    units = len(core.ledger.units)
    with pytest.raises(UnsupportedOperation, match=r"kept by the backend.*now set to have it kept by the gateway"):
        await core.send("2", context="c")
    assert len(core.ledger.units) == units
    assert answer(await core.send("2", context="d")) == "re 2"


async def test_a_closed_context_takes_no_message(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    await core.send("1", context="c")
    change(core.path, "UPDATE context SET state = 'closed'")
    with pytest.raises(UnsupportedOperation, match="The context 'c' is closed"):
        await core.send("2", context="c")


async def test_a_context_that_is_closed_at_the_last_moment_takes_no_message(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    await core.send("1", context="c")
    reading = core.ledger.slow_read("context")
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(outcome(core.send("2", context="c")))
        await soon(reading.reached.wait())
        change(core.path, "UPDATE context SET state = 'closed'")
        reading.go.set()
    assert sending.result() == "UnsupportedOperation"


# --- beginning at once ---


async def test_a_message_to_an_idle_context_begins_in_the_commit_that_accepts_it(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    for text in "12":
        assert states(await frames(await core.stream(text, context="c"))) == ["WORKING", "COMPLETED"]
    assert [[type(point).__name__ for point in unit] for unit in core.ledger.units[-2:]] == [
        ["Accept", "Prepare"],
        ["Append", "Complete", "Finish", "Release"][1:],
    ]


async def test_a_message_for_a_thread_that_another_process_holds_is_submitted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one, running_core(path, prefix="two") as two:
        pause = Pause()
        one.agent(ScriptedAdapter(G, [pause, *says("a")]))
        two.agent(ScriptedAdapter(G, otherwise=echo))
        await one.send("1", context="c", at_once=True)
        waiting = await two.send("2", context="c", at_once=True)
        assert waiting.status.state is TaskState.SUBMITTED
        assert (await two.cancel(waiting.id)).status.state is TaskState.CANCELED
        assert two.ledger.stored(Finish)[0].status == "cancelled"
        pause.go.set()
        await soon(one.runner.idle())
