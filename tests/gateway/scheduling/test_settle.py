"""A process dies at any moment; the next one ends its turns, with a reason and without a gap in any log."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Task, TaskState
from gateway.core.failures import safe_text
from gateway.engine.fanout import Fanout, StreamLimits
from gateway.ledger.calls import RESTARTED
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.tasks import Append, Close, Finish
from gateway.operations.paused_turns import PausedTurns
from gateway.ports.adapter import CallCompleted, CallStarted, Ending, TextDelta, ToolCallReady
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from gateway.scheduling.settle import settle
from tests.support.core import (
    CORRELATION_ID,
    START,
    Core,
    answer,
    events,
    frames,
    logged,
    numbers,
    query,
    running_core,
    said,
    soon,
    states,
    streamed,
)
from tests.support.rows import change
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

LATER = START + 6000
"""When the lease of a process that died at START has run out."""

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])


def failed(task: Task) -> bool:
    message = task.status.message
    return (
        task.status.state is TaskState.FAILED
        and message is not None
        and message.parts[0].text == safe_text(RESTARTED, CORRELATION_ID)
        and message.metadata == {"correlationId": CORRELATION_ID, "errorClass": RESTARTED}
    )


async def left_behind(path: Path, ownership: Ownership, *script: Any, before: Script = ()) -> str:
    """The id of a task whose process died at the end of the script, after a turn of its context that ended well."""
    pause = Pause()
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(ownership, before or says("first", "r1"), [*script, pause]))
        await core.send("1", context="c")
        task = await core.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
        await core.get(task.id)
    return task.id


DEATHS: dict[str, list[Any]] = {
    "before a byte": [],
    "after the backend took it": [CallStarted("r2")],
    "in the middle of the text": [TextDelta("sec"), None, TextDelta("ond")],
    "while a tool runs": [TextDelta("look"), ToolCallReady("c1", "add", "{}", handled=True)],
}


@pytest.mark.parametrize("when", DEATHS)
@BOTH
async def test_a_turn_of_a_dead_process_ends_with_a_reason_and_the_conversation_goes_on(
    tmp_path: Path, ownership: Ownership, when: str
) -> None:
    path = tmp_path / "ledger.db"
    task_id = await left_behind(path, ownership, *DEATHS[when])
    before = logged(path, task_id)
    async with running_core(path, prefix="two", now=LATER) as core:
        adapter = ScriptedAdapter(ownership, says("third", "r3"))
        core.agent(adapter)
        task = await core.get(task_id)
        assert failed(task)
        assert answer(task) == "".join(step.text for step in DEATHS[when] if isinstance(step, TextDelta))
        after = logged(path, task_id)
        assert after[: len(before)] == before
        ends = 1 + sum(isinstance(step, ToolCallReady) for step in DEATHS[when])
        assert numbers(after) == list(range(1, len(before) + ends + 1))
        [listed] = [entry for entry in (await core.list(include_artifacts=True)).tasks if entry.id == task_id]
        assert listed == task
        for last in range(len(after) + 1):
            read = await frames(await core.subscribe(task_id, core.call(last=last)))
            assert read[1:] == after[last:]
            assert streamed(read) == answer(task)
        assert answer(await core.send("3", context="c")) == "third"
        earlier = [] if ownership is BR else ["U 1", "A first"]
        assert adapter.sent == [("r1" if ownership is BR else None, [*earlier, "U 2", "U 3"])]
    assert query(path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)]
    assert query(path, "SELECT status FROM service_call ORDER BY id") == [
        ("completed",),
        ("unknown",),
        ("completed",),
    ]


async def test_a_turn_that_waited_is_ended_as_well_and_never_sent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as core:
        adapter = ScriptedAdapter(G, [Pause()])
        core.agent(adapter)
        tasks = [(await core.send(text, context="c", at_once=True)).id for text in "123"]
    async with running_core(path, prefix="two", now=LATER) as core:
        core.agent(ScriptedAdapter(G))
        ended = [await core.get(task) for task in tasks]
        assert all(map(failed, ended))
        assert [said(task) for task in ended] == [["U 1"], ["U 2"], ["U 3"]]


async def test_a_later_turn_of_a_task_is_ended_with_the_record_of_the_earlier_ones(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as core:
        pause = Pause()
        asks: Script = [TextDelta("hm "), CallCompleted(ending=Ending.INPUT_REQUIRED)]
        core.agent(ScriptedAdapter(G, asks, [TextDelta("blue"), pause]))
        asked = await core.send("paint")
        await core.send("blue", task=asked.id, at_once=True)
        await soon(pause.reached.wait())
        await core.get(asked.id)
    async with running_core(path, prefix="two", now=LATER) as core:
        core.agent(ScriptedAdapter(G))
        task = await core.get(asked.id)
        assert failed(task)
        assert answer(task) == "hm blue"
        assert said(task) == ["U paint", "U blue"]
        assert numbers(logged(path, asked.id)) == [1, 2, 3, 4, 5]


async def test_a_process_that_still_lives_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        pause = Pause()
        one.agent(ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")]))
        task = await one.send("1", at_once=True)
        await soon(pause.reached.wait())
        async with running_core(path, prefix="two", now=START + 4000) as two:
            two.agent(ScriptedAdapter(G))
            assert (await two.get(task.id)).status.state is TaskState.WORKING
        pause.go.set()
        await soon(one.runner.idle())
        assert answer(await one.get(task.id)) == "ab"


async def test_a_lease_that_expires_later_is_settled_by_a_process_that_runs_already(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id = await left_behind(path, G, TextDelta("a"))
    async with running_core(path, prefix="two", lease=LeaseTimes(0.03)) as core:
        core.agent(ScriptedAdapter(G))
        stream = await core.subscribe(task_id)
        core.time.now = LATER
        assert states(await frames(stream)) == ["WORKING", "FAILED"]
        assert failed(await core.get(task_id))


async def test_dying_while_recovering_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id = await left_behind(path, BR, TextDelta("a"))
    before = logged(path, task_id)
    for number in range(5):
        with pytest.raises(ExceptionGroup) as caught:
            async with running_core(
                path, prefix=f"try{number}", now=LATER, before=lambda ledger: ledger.refuse(Finish)
            ):
                pass
        assert caught.group_contains(LedgerUnavailable)
        assert logged(path, task_id) == before
    async with running_core(path, prefix="last", now=LATER) as core:
        core.agent(ScriptedAdapter(BR))
        assert failed(await core.get(task_id))


async def test_two_processes_that_recover_at_once_end_a_turn_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    task_id = await left_behind(path, G, TextDelta("a"))
    async with running_core(path, prefix="two") as core:
        core.agent(ScriptedAdapter(G))
        core.time.now = LATER
        [unfinished] = await core.ledger.unfinished_turns(LATER)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(settle(unfinished, core.ledger, Fanout(StreamLimits()), core.time.clock))
        assert len(core.ledger.stored(Finish)) == 1
        assert numbers(logged(path, task_id)) == [1, 2]


@pytest.mark.parametrize(
    "payload", ["not JSON", '{"task":{"id":"t"}}', '{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}']
)
async def test_a_log_that_cannot_be_read_stops_neither_the_start_nor_the_other_tasks(
    tmp_path: Path, payload: str
) -> None:
    path = tmp_path / "ledger.db"
    broken = await left_behind(path, G, TextDelta("a"))
    async with running_core(path, prefix="three") as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, [pause]))
        other = (await core.send("1", context="d", at_once=True)).id
        await soon(pause.reached.wait())
    change(path, "UPDATE event SET payload = ? WHERE task = ?", payload, broken)
    async with running_core(path, prefix="two", now=LATER) as core:
        core.agent(ScriptedAdapter(G, says("fine"), says("here as well")))
        assert failed(await core.get(other))
        assert answer(await core.send("2", context="d")) == "fine"
        assert failed(await core.get(broken))
        assert answer(await core.send("3", context="c")) == "here as well"


# --- ending a task that waits ---


@pytest.fixture
async def asked(core: Core) -> str:
    core.agent(ScriptedAdapter(G, [CallCompleted(ending=Ending.INPUT_REQUIRED)], says("b")))
    return (await core.send("1")).id


def paused_turns(core: Core) -> PausedTurns:
    return PausedTurns(core.ledger, core.runner, core.fanout, core.time.clock)


async def close(core: Core, task: str) -> bool:
    record = await core.ledger.task(core.call().caller, "echo", task)
    return await paused_turns(core).cancel(core.call().caller, record)


async def test_a_task_that_waits_is_closed_once(core: Core, asked: str) -> None:
    async with asyncio.TaskGroup() as group:
        closing_ = [group.create_task(close(core, asked)) for _ in range(3)]
    assert sorted(task.result() for task in closing_) == [False, False, True]
    assert len(core.ledger.stored(Close)) == 1


async def test_a_message_that_is_faster_keeps_the_task_open(core: Core, asked: str) -> None:
    record = await core.ledger.task(core.call().caller, "echo", asked)
    await core.send("2", task=asked)
    ended = paused_turns(core).cancel(core.call().caller, record)
    assert await ended is False
    assert (await core.get(asked)).status.state is TaskState.COMPLETED


async def test_closing_goes_on_when_its_caller_disconnects(core: Core, asked: str) -> None:
    watching = await core.subscribe(asked)
    gate = core.ledger.hold(Close)
    async with asyncio.TaskGroup() as group:
        canceling = group.create_task(core.cancel(asked))
        await soon(gate.reached.wait())
        canceling.cancel()
        await asyncio.sleep(0)
        core.ledger.let_go()
    assert states(await frames(watching)) == ["INPUT_REQUIRED", "CANCELED"]


async def test_a_stream_survives_the_death_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, [*(TextDelta(f"{n} ") for n in range(9)), pause]))
        stream = await core.stream("1")
        await soon(pause.reached.wait())
        seen = []
        async for batch in stream:
            seen += batch
            if len(streamed(seen)) == 18:
                break
        await stream.aclose()
    task = events(seen)[0].task
    assert task is not None
    async with running_core(path, prefix="two", now=LATER) as core:
        core.agent(ScriptedAdapter(G))
        last = seen[-1][0]
        rest = await frames(await core.subscribe(task.id, core.call(last=last)))
        assert seen[1:] + rest[1:] == logged(path, task.id)
        assert states(rest) == ["WORKING", "FAILED"]
        assert core.ledger.stored(Append) == []
