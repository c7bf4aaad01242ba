"""The turns of a process: one after another on each thread, under leases, whatever the ledger or another process does."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.a2a.errors import Busy, Unanswered
from gateway.a2a.model import TaskState
from gateway.ledger.calls import Complete, Fail, NameCall, Prepare
from gateway.ledger.errors import Conflict, CorruptRecord, LedgerUnavailable
from gateway.ledger.leases import Release, Renew
from gateway.ledger.tasks import Append, Finish
from gateway.ledger.threads import MarkUnsynced
from gateway.ledger.turns import Accept
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import (
    START,
    Core,
    answer,
    broken_off,
    frames,
    logged,
    numbers,
    outcome,
    query,
    reason,
    running_core,
    soon,
    states,
    until,
)
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

SECRET = "sk-do-not-tell"
QUICK = LeaseTimes(length=0.03)
BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])


# --- turns of one thread, and of many ---


@BOTH
async def test_turns_of_one_context_run_one_after_another_in_the_order_of_their_messages(
    core: Core, ownership: Ownership
) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(ownership, *([pause, *says(f"a{n}", f"r{n}")] for n in range(5)))
    core.agent(adapter)
    tasks = [await core.send(f"{n}", context="c", at_once=True) for n in range(5)]
    pause.go.set()
    await soon(core.runner.idle())
    assert [answer(await core.get(task.id)) for task in tasks] == [f"a{n}" for n in range(5)]
    if ownership is BR:
        assert adapter.sent == [(f"r{n - 1}" if n else None, [f"U {n}"]) for n in range(5)]
    else:
        assert adapter.sent[4][1] == [word for n in range(4) for word in (f"U {n}", f"A a{n}")] + ["U 4"]


async def test_contexts_do_not_wait_for_each_other(core: Core) -> None:
    pauses = {str(n): Pause() for n in range(3)}
    core.agent(ScriptedAdapter(G, otherwise=lambda request: [pauses[request.context_id], *says("a")]))
    async with asyncio.TaskGroup() as group:
        for context in pauses:
            group.create_task(core.send("hi", context=context))
        for pause in pauses.values():
            await soon(pause.reached.wait())
        for pause in pauses.values():
            pause.go.set()


@BOTH
async def test_a_message_that_was_read_before_the_last_turn_ended_goes_on_from_its_end(
    core: Core, ownership: Ownership
) -> None:
    pause = Pause()
    first: Script = [TextDelta("a"), pause, CallCompleted("r1", state={"turns": 1})]
    adapter = ScriptedAdapter(ownership, first, says("b", "r2"))
    core.agent(adapter)
    async with asyncio.TaskGroup() as group:
        group.create_task(core.send("1", context="c"))
        await soon(pause.reached.wait())
        reading = core.ledger.slow_read("context")
        second = group.create_task(core.send("2", context="c"))
        await soon(reading.reached.wait())
        pause.go.set()
        await soon(core.runner.idle())
        reading.go.set()
    assert answer(second.result()) == "b"
    assert adapter.sent[1] == (("r1", ["U 2"]) if ownership is BR else (None, ["U 1", "A a", "U 2"]))
    assert adapter.requests[1].state == {"turns": 1}


@BOTH
async def test_a_message_that_arrives_while_the_last_turn_ends_goes_on_from_its_end(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, [TextDelta("a"), CallCompleted("r1", state={"turns": 1})], says("b", "r2"))
    core.agent(adapter)
    gate = core.ledger.hold(Finish)
    async with asyncio.TaskGroup() as group:
        group.create_task(core.send("1", context="c"))
        await soon(gate.reached.wait())
        group.create_task(core.send("2", context="c"))
        await until(lambda: len(gate.waiting) == 2)
        core.ledger.let_go()
    assert adapter.sent[1] == (("r1", ["U 2"]) if ownership is BR else (None, ["U 1", "A a", "U 2"]))
    assert adapter.requests[1].state == {"turns": 1}


async def test_a_thread_is_given_back_with_its_last_turn(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], says("b"), says("c")))
    for n in range(3):
        await core.send(str(n), context="c", at_once=True)
    pause.go.set()
    await soon(core.runner.idle())
    assert len(core.ledger.stored(Release)) == 1
    assert query(core.path, "SELECT lease_holder, lease_until FROM thread") == [(None, None)]


async def test_canceling_a_waiting_turn_does_not_release_the_thread_of_the_running_one(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]))
    await core.send("1", context="c", at_once=True)
    waiting = await core.send("2", context="c", at_once=True)
    await core.cancel(waiting.id)
    assert query(core.path, "SELECT lease_holder FROM thread") != [(None,)]
    pause.go.set()
    await soon(core.runner.idle())
    assert query(core.path, "SELECT lease_holder FROM thread") == [(None,)]


@pytest.mark.parametrize("first", ["fails", "completes"])
async def test_a_turn_that_is_cancelled_while_the_one_before_it_ends_leaves_no_lease(
    tmp_path: Path, first: str
) -> None:
    path, busy = tmp_path / "ledger.db", LeaseTimes(length=3600.0)
    script = says("a") if first == "completes" else [AdapterError(ErrorClass.REJECTED, "400")]
    async with running_core(path, lease=busy) as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, [pause, *script]))
        gate = core.ledger.hold(Finish)
        await core.send("1", context="c", at_once=True)
        waiting = await core.send("2", context="c", at_once=True)
        pause.go.set()
        await soon(gate.reached.wait())
        async with asyncio.TaskGroup() as group:
            group.create_task(core.cancel(waiting.id))
            await until(lambda: len(gate.waiting) == 2)
            core.ledger.let_go()
        await soon(core.runner.idle())
    assert query(path, "SELECT lease_holder FROM thread") == [(None,)]


# --- the ledger fails ---


async def test_a_message_that_cannot_be_stored_is_refused_and_nothing_goes_upstream(core: Core) -> None:
    adapter = ScriptedAdapter(G, says("a"))
    core.agent(adapter)
    core.ledger.refuse(Prepare)
    with pytest.raises(LedgerUnavailable):
        await core.send("hi", core.call(key="k"), context="c")
    assert adapter.requests == []
    assert query(core.path, "SELECT (SELECT count(*) FROM task) + (SELECT count(*) FROM context)") == [(0,)]
    assert answer(await core.send("hi", core.call(key="k"), context="c")) == "a"


LOST: dict[str, tuple[Ownership, type, list[Any]]] = {
    "text": (G, Append, [TextDelta("a"), None, None, None, TextDelta("b")]),
    "text of a chain": (BR, Append, [TextDelta("a"), None, None, None, TextDelta("b")]),
    "text before a pause": (BR, Append, [TextDelta("a"), Pause, TextDelta("b")]),
    "pending handle": (BR, NameCall, [CallStarted("r1"), Pause, TextDelta("b")]),
    "end": (G, Finish, [TextDelta("a")]),
    "end of a chain": (BR, Finish, [TextDelta("a")]),
}


@pytest.mark.parametrize("what", LOST)
async def test_a_turn_that_cannot_be_recorded_is_never_shown_as_done_and_is_settled(tmp_path: Path, what: str) -> None:
    ownership, point, steps = LOST[what]
    pause = Pause()
    script: Script = [pause if step is Pause else step for step in steps]
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        adapter = ScriptedAdapter(ownership, [*script, *says("!", "r1")], says("b", "r2"))
        core.agent(adapter)
        lost = core.ledger.refuse(point)
        stream = await core.stream("1", context="c")
        watching = await core.subscribe("id-0001")
        await soon(lost.wait())
        await core.ledger.commit()
        pause.go.set()
        sent, error = await broken_off(stream)
        shown, same = await broken_off(watching)
        assert isinstance(error, LedgerUnavailable)
        assert (error is same, states(sent), states(shown)) == (True, ["WORKING"], ["WORKING"])
        read = await frames(await core.subscribe("id-0001", core.call(last=shown[-1][0])))
        assert states(read)[-1:] == ["FAILED"]
        log = logged(core.path, "id-0001")
        assert [*shown[1:], *read[1:]] == log
        assert numbers(log) == list(range(1, len(log) + 1))
        assert "gateway stopped" in reason(await core.get("id-0001"))
        assert answer(await core.send("2", context="c")) == "b"
        assert adapter.sent[1] == (None, ["U 1", "U 2"])


async def test_a_caller_that_waits_for_a_turn_that_cannot_be_recorded_learns_that_its_message_was_accepted(
    core: Core,
) -> None:
    adapter = ScriptedAdapter(G, says("a"))
    core.agent(adapter)
    core.ledger.refuse(Finish)
    with pytest.raises(Unanswered) as caught:
        await soon(core.send("1", context="c"))
    assert caught.value.metadata == {"taskId": "id-0001"}
    assert len(adapter.requests) == 1


async def test_a_repeated_message_whose_turn_cannot_be_recorded_may_be_repeated_again(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, [pause, *says("a")]))
        task = await core.send("1", core.call(key="k"), context="c", at_once=True)
        await soon(pause.reached.wait())
        lost = core.ledger.refuse(Finish)
        async with asyncio.TaskGroup() as group:
            again = group.create_task(outcome(core.send("1", core.call(key="k"), context="c")))
            await until(lambda: "replay" in core.ledger.reads)
            pause.go.set()
        assert lost.is_set()
        assert again.result() == "LedgerUnavailable"
        await until(lambda: core.runner.run_of(task.id) is None)


async def test_a_turn_that_a_fault_of_the_gateway_ends_breaks_its_streams_off(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    for point in (Complete, Fail):
        core.ledger.refuse(point, CorruptRecord("a row"))
    core.ledger.refuse(Finish, CorruptRecord("a row"))
    shown, error = await broken_off(await core.stream("1", context="c"))
    assert isinstance(error, CorruptRecord)
    assert states(shown) == ["WORKING"]


async def test_a_cancel_that_cannot_be_stored_is_not_reported_as_one(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db") as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, [pause]))
        task = await core.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        core.ledger.refuse(Finish)
        with pytest.raises(Busy, match="cannot be canceled now"):
            await core.cancel(task.id)


async def test_a_failure_that_cannot_be_stored_is_settled(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        core.agent(ScriptedAdapter(G, [AdapterError(ErrorClass.REJECTED, SECRET)]))
        core.ledger.refuse(Fail)
        with pytest.raises(Unanswered):
            await core.send("1", context="c")
        await until(lambda: core.ledger.stored(MarkUnsynced))
        await core.ledger.commit()
        assert "gateway stopped" in reason(await core.get("id-0001"))


async def test_a_gateway_whose_upkeep_fails_goes_on(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, [pause, *says("a")]))
        lost = core.ledger.refuse(Renew)
        await core.send("1", context="c", at_once=True)
        await soon(lost.wait())
        await until(lambda: core.ledger.stored(Renew))
        pause.go.set()
        await soon(core.runner.idle())


# --- two processes on one database ---


@pytest.mark.parametrize("script", [says("b", "r2"), [TextDelta("b"), None, None, None, *says("c", "r2")]])
async def test_a_process_that_lost_its_lease_commits_nothing_and_its_streams_are_told(
    tmp_path: Path, script: Script
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        pause = Pause()
        one.agent(ScriptedAdapter(BR, [TextDelta("a"), pause, *script]))
        stream = await one.stream("1", context="c")
        await soon(pause.reached.wait())
        watching = await one.subscribe("one-0001")
        async with running_core(path, prefix="two", now=one.time.now + 6000) as two:
            two.agent(ScriptedAdapter(BR, says("ok", "q1")))
            settled = await two.get("one-0001")
            assert "gateway stopped" in reason(settled)
            pause.go.set()
            for each in (watching, stream):
                shown, error = await broken_off(each)
                assert isinstance(error, Busy)
                assert "is not run here any more; resume the stream" in str(error)
                assert "COMPLETED" not in states(shown)
            assert await one.get("one-0001") == settled == await two.get("one-0001")
            assert query(path, "SELECT handle FROM thread") == [(None,)]
            assert answer(await two.send("2", context="c")) == "ok"


async def test_a_caller_that_waits_for_a_turn_that_the_process_has_lost_gets_its_end(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        core.agent(ScriptedAdapter(G, says("a")))
        lost = core.ledger.refuse(Finish, Conflict("another process has it"))
        task = await soon(core.send("1", context="c"))
        assert lost.is_set()
        assert "gateway stopped" in reason(task)


# --- stopping ---


async def test_a_gateway_that_stops_leaves_no_caller_waiting(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause], [pause]))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(outcome(core.send("1", context="c")))
        await soon(pause.reached.wait())
        waiting = group.create_task(outcome(core.send("2", context="c")))
        await until(lambda: core.runner.run_of("id-0002"))
        stream = await core.stream("3", context="d")
        await core.die()
        await soon(asyncio.wait([running, waiting]))
    assert "COMPLETED" not in states(await frames(stream))
    assert core.ledger.stored(Complete) == []
    assert core.ledger.stored(Fail) == []


async def test_a_gateway_is_idle_when_its_turns_have_ended(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")]))
    await soon(core.runner.idle())
    await core.send("1", at_once=True)
    async with asyncio.TaskGroup() as group:
        idle = group.create_task(core.runner.idle())
        await soon(pause.reached.wait())
        assert not idle.done()
        pause.go.set()


@pytest.mark.parametrize("where", ["read", "stored"])
async def test_a_gateway_has_drained_when_requests_in_flight_have_ended_too(core: Core, where: str) -> None:
    core.agent(ScriptedAdapter(G, says("a"), says("b")))
    await core.send("1", context="c")
    slow = core.ledger.slow_read("context") if where == "read" else None
    reached = slow.reached if slow is not None else core.ledger.hold(Accept).reached
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(core.send("2", context="c"))
        await soon(reached.wait())
        core.drain.set()
        core.runner.retired = True
        drained = group.create_task(core.runner.drained())
        await passed(core)
        early = drained.done()
        if slow is not None:
            slow.go.set()
        core.ledger.let_go()
    assert (early, answer(sending.result())) == (False, "b")


async def test_a_gateway_has_drained_when_turns_that_it_took_over_or_was_settling_have_ended(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(G, [pause]))
        task = await one.send("1", at_once=True)
        await soon(pause.reached.wait())
    held: list[Pause] = []
    async with running_core(
        path,
        prefix="two",
        now=START + 6000,
        lease=LeaseTimes(start=0.0),
        before=lambda ledger: held.append(ledger.slow_read("turns")),
    ) as two:
        two.agent(ScriptedAdapter(G))
        await soon(held[0].reached.wait())
        two.runner.retired = True
        async with asyncio.TaskGroup() as group:
            drained = group.create_task(two.runner.drained())
            await passed(two)
            early = drained.done()
            held[0].go.set()
        assert (early, (await two.get(task.id)).status.state) == (False, TaskState.FAILED)


async def test_a_gateway_that_drains_does_not_look_for_orphaned_turns(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        core.agent(ScriptedAdapter(G, [pause := Pause(), *says("a")]))
        await core.send("1", at_once=True)
        await soon(pause.reached.wait())
        core.runner.retired = True
        core.ledger.reads.clear()
        for _ in range(5):
            renewed = core.ledger.hold(Renew)
            await soon(renewed.reached.wait())
            core.ledger.let_go()
        assert "unfinished_turns" not in core.ledger.reads
        pause.go.set()


async def passed(core: Core) -> None:
    """Whatever could happen by itself has happened."""
    for _ in range(5):
        await core.ledger.open_turns("none")


@pytest.mark.parametrize(("took", "rest"), [(0.0, 2.0), (0.5, 1.5), (2.0, 0.0), (7.0, 0.0)])
def test_leases_are_renewed_every_round_and_at_once_after_one_that_took_longer(took: float, rest: float) -> None:
    assert LeaseTimes(6.0, 3).rest(took) == rest


async def test_leases_whose_renewal_took_long_are_renewed_again_before_anything_else(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db", lease=QUICK) as core:
        core.agent(ScriptedAdapter(G, [pause := Pause(), *says("a")]))
        await core.send("1", at_once=True)
        await soon(pause.reached.wait())
        late = core.ledger.hold(Renew)
        await soon(late.reached.wait())
        core.time.monotonic += 5
        core.ledger.reads.clear()
        core.ledger.let_go()
        again = core.ledger.hold(Renew)
        await soon(again.reached.wait())
        reads = list(core.ledger.reads)
        core.ledger.let_go()
        pause.go.set()
    assert "cancel_requests" not in reads


class Noting(LeaseTimes, frozen=True):
    """What the upkeep says of how long a renewal took."""

    tooks: ClassVar[list[float]] = []

    def rest(self, took: float) -> float:
        self.tooks.append(took)
        return super().rest(took)


async def test_a_renewal_that_failed_late_is_made_again_at_once(tmp_path: Path) -> None:
    Noting.tooks.clear()
    async with running_core(tmp_path / "ledger.db", lease=Noting(0.03)) as core:
        core.agent(ScriptedAdapter(G, [pause := Pause(), *says("a")]))
        await core.send("1", at_once=True)
        await soon(pause.reached.wait())
        late = core.ledger.hold(Renew)
        await soon(late.reached.wait())
        core.time.monotonic += 5
        lost = core.ledger.refuse(Renew)
        core.ledger.let_go()
        await soon(lost.wait())
        await until(lambda: 5.0 in Noting.tooks)
        pause.go.set()
