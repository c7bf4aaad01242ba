"""Deletion of contexts, as the admin API calls it."""

import asyncio

import pytest

from gateway.a2a.errors import Busy, NotFound, TaskNotFound, UnsupportedOperation
from gateway.a2a.model import Part, TaskState
from gateway.ledger.retention import DeleteContext
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import Caller
from gateway.operations.contexts import Contexts
from gateway.ports.adapter import CallCompleted, Ending, TextDelta
from tests.support.core import Core, broken_off, frames, query, soon, states, until
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says

ADA = Caller("ada")
ASKS = [CallCompleted("r", Ending.INPUT_REQUIRED, (Part(text="which?"),))]


def contexts(core: Core) -> Contexts:
    return Contexts(core.ledger, core.runner, core.fanout, core.time.clock, core.drain)


async def test_a_deleted_context_is_gone_and_takes_no_message(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, says("one", "r-1"), says("two", "r-2"), says("else", "r-3")))
    first = await core.send("hi", context="c")
    await core.send("more", context="c")
    other = await core.send("hi", context="d")

    await contexts(core).delete(ADA, "c")

    with pytest.raises(TaskNotFound):
        await core.get(first.id)
    assert [task.id for task in (await core.list()).tasks] == [other.id]
    with pytest.raises(UnsupportedOperation, match="The context 'c' is deleted"):
        await core.send("again", context="c")
    assert query(core.path, "SELECT handle FROM delete_job ORDER BY handle") == [("r-1",), ("r-2",)]


async def test_a_deletion_whose_turn_outlasts_the_drain_is_told_as_one_that_is_not_done(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [Pause()]))
    task = await core.send("hi", context="c", at_once=True)
    core.ledger.hold(Finish)
    async with asyncio.TaskGroup() as group:
        deletion = group.create_task(_refused_deletion(core))
        await until(lambda: core.drain.over.callbacks)
        core.drain.set()
        core.drain.over.set()
        await soon(deletion)
    core.ledger.let_go()
    await soon(core.runner.idle())
    assert (await core.get(task.id)).status.state is TaskState.CANCELED


async def _refused_deletion(core: Core) -> None:
    with pytest.raises(Busy, match="The gateway is shutting down; try again"):
        await contexts(core).delete(ADA, "c")


@pytest.mark.parametrize("context", ["c", "unknown"])
async def test_only_a_context_of_the_caller_is_found(core: Core, context: str) -> None:
    core.agent(ScriptedAdapter(G, says("one")))
    task = await core.send("hi", context="c")
    eve = Caller("eve") if context == "c" else ADA
    with pytest.raises(NotFound, match=f"there is no context '{context}' of yours"):
        await contexts(core).delete(eve, context)
    assert (await core.get(task.id)).id == task.id


async def test_a_deleted_context_cannot_be_deleted_again(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("one")))
    await core.send("hi", context="c")
    await contexts(core).delete(ADA, "c")
    with pytest.raises(NotFound):
        await contexts(core).delete(ADA, "c")


async def test_a_deletion_through_an_agent_needs_a_thread_on_it_and_reaches_all_agents(core: Core) -> None:
    other = core.agent(ScriptedAdapter(G), "other")
    third = core.agent(ScriptedAdapter(G, says("three")), "third")
    echo = core.agent(ScriptedAdapter(G, says("one")), "echo")
    await core.send("hi", context="c")
    task = await core.send("hi", core.call(agent=third), context="c")
    with pytest.raises(NotFound, match="there is no context 'c' of yours with the agent 'other'"):
        await contexts(core).delete(ADA, "c", other)
    await contexts(core).delete(ADA, "c", echo)
    with pytest.raises(TaskNotFound):
        await core.get(task.id, core.call(agent=third))


async def test_turns_that_run_or_wait_are_cancelled_first_and_their_streams_end(core: Core) -> None:
    held = Pause()
    adapter = ScriptedAdapter(G, [TextDelta("so "), held])
    core.agent(adapter)
    running = await core.stream("hi", context="c")
    await held.reached.wait()
    queued = await core.stream("more", context="c")

    await soon(contexts(core).delete(ADA, "c"))

    assert states(await frames(running)) == ["WORKING", "CANCELED"]
    assert states(await frames(queued)) == ["SUBMITTED", "CANCELED"]
    assert (len(adapter.requests), adapter.broken_off) == (1, 1)
    assert query(core.path, "SELECT * FROM task") == []


async def test_a_watcher_of_a_waiting_task_sees_its_end(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS))
    task = await core.send("hi", context="c")
    assert task.status.state is TaskState.INPUT_REQUIRED
    watching = await core.subscribe(task.id)
    await soon(contexts(core).delete(ADA, "c"))
    assert states(await frames(watching)) == ["INPUT_REQUIRED", "CANCELED"]


async def test_a_message_that_comes_in_between_is_lost_with_its_context(core: Core) -> None:
    held = Pause()
    adapter = ScriptedAdapter(G, says("one"), [TextDelta("so "), held])
    core.agent(adapter)
    await core.send("hi", context="c")
    between = core.ledger.slow_read("waiting_tasks")
    async with asyncio.TaskGroup() as group:
        group.create_task(contexts(core).delete(ADA, "c"))
        await soon(between.reached.wait())
        late = await core.stream("late", context="c")
        await soon(held.reached.wait())
        between.go.set()
    shown, error = await broken_off(late)
    assert (states(shown), type(error)) == (["WORKING"], Busy)
    assert adapter.broken_off == 1
    assert query(core.path, "SELECT * FROM task") == []


async def test_a_message_during_the_deletion_is_refused(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("one")))
    await core.send("hi", context="c")
    gate = core.ledger.hold(DeleteContext)

    async def late() -> None:
        with pytest.raises(UnsupportedOperation, match="The context 'c' is deleted"):
            await core.send("late", context="c")

    async with asyncio.TaskGroup() as group:
        group.create_task(contexts(core).delete(ADA, "c"))
        await soon(gate.reached.wait())
        group.create_task(late())
        await until(lambda: len(gate.waiting) > 1)
        core.ledger.let_go()
