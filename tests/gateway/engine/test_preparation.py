"""Preparing service calls: another process on the thread is waited for, and nothing is sent that is not recorded."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.a2a.errors import Unanswered, UnsupportedOperation
from gateway.a2a.model import TaskState
from gateway.ledger.calls import Prepare
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import Core, answer, broken_off, frames, reason, running_core, soon, states
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says

QUICK = LeaseTimes(length=0.03)


async def test_the_deadline_of_a_call_is_the_turns(core: Core) -> None:
    adapter = ScriptedAdapter(G, says("a"))
    core.agent(adapter, turn_timeout=60)
    await core.send("hi")
    assert adapter.requests[0].deadline == 1060.0


async def test_a_turn_that_cannot_be_prepared_sends_nothing_and_is_settled(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        pause = Pause()
        adapter = ScriptedAdapter(G, [pause, *says("a")])
        core.agent(adapter)
        await core.send("1", context="c", at_once=True)
        second = await core.send("2", context="c", at_once=True)
        watching = await core.subscribe(second.id)
        core.ledger.refuse(Prepare)
        pause.go.set()
        read, error = await broken_off(watching)
        assert isinstance(error, LedgerUnavailable)
        assert states(read) == ["SUBMITTED"]
        with suppress(UnsupportedOperation):  # recovery has been faster
            await frames(await core.subscribe(second.id))
        assert (await core.get(second.id)).status.state is TaskState.FAILED
        assert len(adapter.requests) == 1


async def test_a_turn_whose_history_cannot_be_read_sends_nothing_and_is_settled(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        adapter = ScriptedAdapter(G, says("a"))
        core.agent(adapter)
        await core.send("1", context="c")
        core.ledger.fail_reads("history")
        with pytest.raises(Unanswered) as caught:
            await core.send("2", context="c")
        core.ledger.fail_reads()
        assert caught.value.metadata is not None
        second = caught.value.metadata["taskId"]
        with suppress(UnsupportedOperation):  # recovery has been faster
            await frames(await core.subscribe(second))
        assert "gateway stopped" in reason(await core.get(second))
        assert len(adapter.requests) == 1


async def test_a_thread_that_another_process_holds_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with (
        running_core(path, prefix="one") as one,
        running_core(path, prefix="two", lease=QUICK) as two,
    ):
        pause = Pause()
        first, second = ScriptedAdapter(BR, [pause, *says("a", "r1")]), ScriptedAdapter(BR, says("b", "r2"))
        one.agent(first)
        two.agent(second)
        await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(two.send("2", context="c"))
            reread = two.ledger.slow_read("thread")
            await soon(reread.reached.wait())
            reread.go.set()
            pause.go.set()
        assert answer(sending.result()) == "b"
        assert second.sent == [("r1", ["U 2"])]


async def test_a_turn_that_another_process_has_settled_is_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one", lease=QUICK) as one:
        pause = Pause()
        adapter = ScriptedAdapter(G, [pause, *says("a")])
        one.agent(adapter)
        await one.send("1", context="c", at_once=True)
        waiting = await one.send("2", context="c", at_once=True)
        async with running_core(path, prefix="two", now=one.time.now + 10**6):
            pass
        pause.go.set()
        await soon(one.runner.idle())
        assert "gateway stopped" in reason(await one.get(waiting.id))
        assert len(adapter.requests) == 1


async def test_a_thread_that_is_gone_ends_the_turn(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [pause, *says("a")])
    core.agent(adapter)
    await core.send("1", context="c", at_once=True)
    waiting = await core.send("2", context="c", at_once=True)
    core.ledger.refuse(Prepare, Conflict("it was deleted"))
    gone = core.ledger.answer_read("thread", None)
    pause.go.set()
    await soon(gone.wait())
    await soon(core.runner.idle())
    assert len(adapter.requests) == 1
    assert (await core.get(waiting.id)).status.state is TaskState.SUBMITTED
