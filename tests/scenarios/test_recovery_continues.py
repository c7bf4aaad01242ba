"""Turns of a dead process continue in another one where that is safe: nothing that may have been done is done again."""

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Artifact, Part, SendMessageConfiguration, SendMessageRequest, TaskState
from gateway.a2a.tool_calls import URI
from gateway.core.failures import OWNER_CONFLICT
from gateway.ledger.calls import RESTARTED, Prepare
from gateway.ledger.leases import Claim, Heartbeat, RequestCancel, TakeOver
from gateway.ledger.tasks import Finish
from gateway.ports.adapter import (
    AdapterError,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    ReasoningDelta,
    TextDelta,
    ToolCallReady,
)
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.support.core import (
    START,
    Core,
    FragileLedger,
    Gate,
    answer,
    error_class,
    frames,
    logged,
    message,
    numbers,
    query,
    running_core,
    said,
    soon,
    states,
    streamed,
    until,
)
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

LATER = START + 6000
BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
ONCE = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=False)
"""A Python function: what it did is not known."""
OFTEN = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING, repeatable=True)
"""A chain of responses whose backend runs no tools."""


async def left_behind(path: Path, ownership: Ownership, *texts: str, script: Script = (), **policies: Any) -> list[str]:
    """The tasks of a context of which the first was at work when its process died, and the others waited."""
    pause = Pause()
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(ownership, [*script, pause]), **policies)
        tasks = [(await core.send(text, context="c", at_once=True)).id for text in texts]
        await soon(pause.reached.wait())
        await core.get(tasks[0])
        return tasks


def survivor(
    path: Path, adapter: ScriptedAdapter, prefix: str = "two", now: int = LATER, **more: Any
) -> AbstractAsyncContextManager[Core]:
    """A process that starts when the leases of the dead one have run out, and knows the agent from the beginning."""
    return running_core(path, prefix=prefix, now=now, adapter=adapter, **more)


# --- what waited ------------------------------------------------------------------------------------------------------


@BOTH
async def test_109d_turns_that_waited_run_in_the_process_that_recovers_in_their_order(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    first, *waited = await left_behind(path, ownership, "1", "2", "3", script=[TextDelta("a")])
    adapter = ScriptedAdapter(ownership, says("b", "r2"), says("c", "r3"))
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        assert error_class(await core.get(first)) == RESTARTED
        tasks = [await core.get(task) for task in waited]
        assert [(task.status.state.name, answer(task)) for task in tasks] == [("COMPLETED", "b"), ("COMPLETED", "c")]
        assert [said(task) for task in tasks] == [["U 2"], ["U 3"]]
    if ownership is BR:
        assert adapter.sent == [(None, ["U 1", "U 2"]), ("r2", ["U 3"])]
    else:
        assert adapter.sent == [(None, ["U 1", "U 2"]), (None, ["U 1", "U 2", "A b", "U 3"])]
    for task in waited:
        assert states(logged(path, task)) == ["WORKING", "COMPLETED"]
        assert numbers(logged(path, task)) == list(range(1, len(logged(path, task)) + 1))
    assert violations(path) == []


async def test_109d_a_turn_that_waited_has_all_that_its_message_came_with(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as core:
        pause = Pause()
        core.agent(ScriptedAdapter(G, [pause]))
        await core.send("1", context="c", at_once=True)
        configuration = SendMessageConfiguration(return_immediately=True, accepted_output_modes=("text/plain",))
        request = SendMessageRequest(message=message("2", context="c"), configuration=configuration)
        waited = (await core.operations.send_message(core.call(), request)).task
        assert waited is not None
    adapter = ScriptedAdapter(G, says("a"), says("b"))
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        assert answer(await core.get(waited.id)) == "b"
    assert [request.accepted_output_modes for request in adapter.requests] == [(), ("text/plain",)]
    assert adapter.requests[1].message.parts == (Part(text="2"),)
    assert adapter.requests[1].task_id == waited.id


async def test_109d_a_message_behind_those_that_waited_comes_behind_them(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    _, second = await left_behind(path, BR, "1", "2")
    pause = Pause()
    adapter = ScriptedAdapter(BR, [pause, *says("b", "r2")], says("c", "r3"))
    async with survivor(path, adapter) as core:
        await soon(pause.reached.wait())
        third = await core.send("3", context="c", at_once=True)
        pause.go.set()
        await soon(core.runner.idle())
        assert answer(await core.get(second)) == "b"
        assert answer(await core.get(third.id)) == "c"
    assert adapter.sent == [(None, ["U 1", "U 2"]), ("r2", ["U 3"])]


async def test_109d_a_stream_on_a_turn_that_waited_sees_it_run(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    _, second = await left_behind(path, G, "1", "2", script=[TextDelta("a")])
    pause = Pause()
    async with survivor(path, ScriptedAdapter(G, [pause, *says("b")])) as core:
        await soon(pause.reached.wait())
        stream = await core.subscribe(second, core.call(last=0))
        pause.go.set()
        read = await frames(stream)
        assert states(read)[-2:] == ["WORKING", "COMPLETED"]
        assert streamed(read) == "b"
        assert read[1:] == logged(path, second)


async def test_109d_a_turn_that_waited_and_whose_agent_is_gone_fails_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    _, second = await left_behind(path, G, "1", "2")
    async with running_core(path, prefix="two", now=LATER) as core:
        core.agent(ScriptedAdapter(G))
        assert error_class(await core.get(second)) == RESTARTED


async def test_109d_an_answer_to_a_question_that_waited_goes_on_in_its_task(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as core:
        asks: Script = [TextDelta("which? "), CallCompleted("r1", ending=Ending.INPUT_REQUIRED)]
        core.agent(ScriptedAdapter(BR, asks, [Pause()]))
        asked = await core.send("paint", context="c")
        other = await core.send("more", context="c", at_once=True)
        await core.send("blue", task=asked.id, at_once=True)
    adapter = ScriptedAdapter(BR, says("done", "r3"))
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        task = await core.get(asked.id)
        assert (error_class(await core.get(other.id)), answer(task)) == (RESTARTED, "which? done")
        assert said(task)[:2] == ["U paint", "U blue"]
    assert adapter.requests[0].first_message.parts == (Part(text="paint"),)
    assert numbers(logged(path, asked.id)) == list(range(1, len(logged(path, asked.id)) + 1))
    assert violations(path) == []


async def test_137_a_turn_that_waited_and_was_to_be_cancelled_is_cancelled_and_never_sent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    _, second = await left_behind(path, G, "1", "2", script=[TextDelta("a")])
    async with running_core(path, prefix="mid", now=START) as core:
        await core.ledger.commit(asked_to_cancel(path, second))
    adapter = ScriptedAdapter(G)
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        assert (await core.get(second)).status.state is TaskState.CANCELED
    assert adapter.requests == []
    assert violations(path) == []


def asked_to_cancel(path: Path, task: str) -> RequestCancel:
    [(turn,)] = query(path, "SELECT id FROM turn WHERE task = ?", task)
    return RequestCancel((turn,))


# --- two processes ----------------------------------------------------------------------------------------------------


@BOTH
async def test_136_what_waited_in_a_process_that_died_runs_in_the_one_that_lives_before_its_own(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    quick = LeaseTimes(5.0, 500)
    dying = ScriptedAdapter(ownership, says("a", "r1"), [TextDelta("b"), Pause()])
    living = ScriptedAdapter(ownership, says("c", "r3"), says("d", "r4"), says("e", "r5"))
    async with running_core(path, prefix="two", lease=quick, adapter=living) as two:
        async with running_core(path, prefix="one", lease=quick, adapter=dying) as one:
            await one.send("1", context="c")
            lost = await one.send("2", context="c", at_once=True)
            await soon(dying.paused.wait())
            await one.get(lost.id)
            theirs = await one.send("3", context="c", at_once=True)
            ours = await two.send("4", context="c", at_once=True)
            last = await one.send("5", context="c", at_once=True)
        assert living.requests == []
        two.time.now = LATER
        watching = [await two.subscribe(task.id) for task in (theirs, ours, last)]
        assert [streamed(await frames(stream)) for stream in watching] == ["c", "d", "e"]
        assert error_class(await two.get(lost.id)) == RESTARTED
        await soon(two.runner.idle())
    assert [request.message.parts[0].text for request in living.requests] == ["3", "4", "5"]
    order = "SELECT status FROM turn ORDER BY number"
    assert query(path, order) == [("completed",), ("failed",), ("completed",), ("completed",), ("completed",)]
    assert query(path, "SELECT lease_holder FROM thread") == [(None,)]
    assert violations(path) == []


async def test_135_of_two_processes_that_find_a_turn_that_waited_one_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    _, second = await left_behind(path, G, "1", "2", script=[TextDelta("a")])
    adapter = ScriptedAdapter(G, otherwise=lambda _: says("b"))
    async with asyncio.TaskGroup() as group:

        async def recover(name: str) -> None:
            async with survivor(path, adapter, name) as core:
                await soon(core.runner.idle())

        for name in ("two", "three", "four"):
            group.create_task(recover(name))
    assert len(adapter.requests) == 1
    assert query(path, "SELECT status FROM turn WHERE task = ?", second) == [("completed",)]
    assert violations(path) == []


async def test_135_a_process_that_stood_still_does_not_run_what_another_has_taken(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one", lease=LeaseTimes(1000)) as one:
        pause = Pause()
        one.agent(ScriptedAdapter(G, [TextDelta("a"), pause, TextDelta("b"), None, *says("c")]))
        await one.send("1", context="c", at_once=True)
        second = await one.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
        held = Pause()
        adapter = ScriptedAdapter(G, [TextDelta("x"), held, *says("y")])
        async with survivor(path, adapter, now=START + 10**7) as two:
            await soon(held.reached.wait())
            pause.go.set()
            await soon(one.runner.idle())
            assert (await two.get(second.id)).status.state is TaskState.WORKING
            held.go.set()
            await soon(two.runner.idle())
            assert answer(await two.get(second.id)) == "xy"
    assert violations(path) == []


async def test_136_a_process_says_that_it_lives_in_the_unit_in_which_it_takes_a_turn_that_waited(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    _, second = await left_behind(path, G, "1", "2", script=[TextDelta("a")])
    held = Pause()
    async with survivor(path, ScriptedAdapter(G, [held, *says("b")])) as two:
        await soon(held.reached.wait())
        units = [unit for unit in two.ledger.units if any(isinstance(point, Claim) for point in unit)]
        assert units
        assert all(any(isinstance(point, Heartbeat) for point in unit) for unit in units)
        held.go.set()
        await soon(two.runner.idle())
        assert answer(await two.get(second)) == "b"


async def test_agents_are_used_until_what_was_being_taken_up_with_them_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    _, second = await left_behind(path, G, "1", "2", script=[TextDelta("a")])
    adapter = ScriptedAdapter(G, [held := Pause(), *says("b")])
    claims: list[Gate] = []

    def hold(ledger: FragileLedger) -> None:
        claims.append(ledger.hold(Claim))

    async with survivor(path, adapter, lease=LeaseTimes(start=0.0), before=hold) as two:
        await soon(claims[0].reached.wait())
        async with asyncio.TaskGroup() as group:
            left = group.create_task(two.runner.unused(tuple(two.agents)))
            two.ledger.let_go()
            await soon(held.reached.wait())
            early = left.done()
            held.go.set()
        assert (early, answer(await two.get(second))) == (False, "b")


# --- what was under way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])
async def test_109d_a_refused_call_that_another_process_makes_again_is_the_very_request_that_was_refused(
    tmp_path: Path, ownership: Ownership
) -> None:
    """The adapter makes its key out of it, such as the `messageId` of A2A, by which a backend may know a repeat."""
    path = tmp_path / "ledger.db"
    refused = ScriptedAdapter(
        ownership, [CallStarted("r1"), CallCompleted("r1", state={"n": 1})], [AdapterError(ErrorClass.RATE_LIMITED, "")]
    )
    async with running_core(path, prefix="one") as one:
        one.agent(refused)
        await one.send("1", context="c")
        one.waits.held = Pause()
        task = await one.send("2", context="c", at_once=True)
        await soon(one.waits.held.reached.wait())
    adapter = ScriptedAdapter(ownership, says("b", "r1" if ownership is BS else "r2"))
    async with survivor(path, adapter) as two:
        await soon(two.runner.idle())
        assert answer(await two.get(task.id)) == "b"
    first, again = (replace(each, deadline=0.0) for each in (refused.requests[1], adapter.requests[0]))
    assert again == first
    assert violations(path) == []


@pytest.mark.parametrize(
    ("ownership", "script"), [(G, [CallStarted()]), (OFTEN, [])], ids=["G", "BR, no byte came back"]
)
async def test_109d_a_call_of_which_nothing_was_shown_is_made_again_where_that_changes_nothing(
    tmp_path: Path, ownership: Ownership, script: Script
) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, ownership, "1", script=script)
    adapter = ScriptedAdapter(ownership, says("a", "r1"), says("b", "r2"))
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        assert answer(await core.get(task)) == "a"
        await core.send("2", context="c")
    following = (None, ["U 1", "A a", "U 2"]) if ownership is G else ("r1", ["U 2"])
    assert adapter.sent == [(None, ["U 1"]), following]
    assert query(path, "SELECT round, attempt, status, error_class FROM service_call WHERE handle_in IS NULL") == [
        (0, 0, "failed", RESTARTED),
        (0, 1, "completed", None),
        *([(0, 0, "completed", None)] if ownership is G else []),
    ]
    assert violations(path) == []


async def test_109d_a_response_that_had_begun_on_a_chain_is_not_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, OFTEN, "1", script=[CallStarted("r0")])
    adapter = ScriptedAdapter(OFTEN)
    async with survivor(path, adapter) as core:
        assert error_class(await core.get(task)) == RESTARTED
    assert adapter.requests == []
    assert violations(path) == []


async def test_109d_a_later_call_on_a_chain_is_made_again_from_where_it_went_out(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(OFTEN, says("a", "r1"), [pause]))
        await one.send("1", context="c")
        lost = await one.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
    adapter = ScriptedAdapter(OFTEN, says("b", "r2"))
    async with survivor(path, adapter) as core:
        await soon(core.runner.idle())
        assert answer(await core.get(lost.id)) == "b"
    assert adapter.sent == [("r1", ["U 2"])]
    assert violations(path) == []


SHOWN: dict[str, Script] = {
    "text": [TextDelta("a")],
    "reasoning": [ReasoningDelta("hm")],
    "a tool of the backend's": [ToolCallReady("c1", "look", "{}", handled=True)],
}


@pytest.mark.parametrize("case", SHOWN)
async def test_109d_a_call_of_which_something_was_shown_is_not_made_again(tmp_path: Path, case: str) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, G, "1", script=SHOWN[case])
    adapter = ScriptedAdapter(G)
    async with survivor(path, adapter) as core:
        assert error_class(await core.get(task)) == RESTARTED
    assert adapter.requests == []
    assert violations(path) == []


@pytest.mark.parametrize(("name", "handled", "end"), [("one", None, "cancelled"), ("its_own", True, "interrupted")])
async def test_48_a_call_that_its_process_had_shown_before_it_died_gets_its_end(
    tmp_path: Path, name: str, handled: bool | None, end: str
) -> None:
    path = tmp_path / "ledger.db"
    script: Script = [ToolCallReady("c1", name, "{}", handled)]
    [task] = await left_behind(path, G, "1", script=script, toolset=ScriptedTools({"one": "O"}))
    async with survivor(path, ScriptedAdapter(G)) as core:
        ended = await core.get(task)
    parts = [part for message in ended.history or () for part in message.parts]
    told: list[Any] = [part.metadata[URI] for part in parts if part.metadata and URI in part.metadata]
    assert [(fact["phase"], fact["callId"] == told[0]["callId"]) for fact in told] == [("requested", True), (end, True)]
    assert violations(path) == []


@pytest.mark.parametrize("ownership", [BR, BS, ONCE], ids=["BR", "BS", "function"])
async def test_109d_a_call_that_may_have_changed_something_is_not_made_again(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, ownership, "1")
    adapter = ScriptedAdapter(ownership)
    async with survivor(path, adapter) as core:
        assert error_class(await core.get(task)) == RESTARTED
    assert adapter.requests == []
    assert violations(path) == []


async def test_109d_a_turn_that_kills_its_process_is_taken_up_twice_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, G, "1")
    asked = 0
    for number in range(4):
        pause = Pause()
        adapter = ScriptedAdapter(G, [pause])
        async with survivor(path, adapter, f"try{number}", LATER + number * 6000) as core:
            if number < 2:
                await soon(pause.reached.wait())
                assert (await core.get(task)).status.state is TaskState.WORKING
            else:
                assert error_class(await core.get(task)) == RESTARTED
            asked += len(adapter.requests)
    assert asked == 2
    assert query(path, "SELECT attempt, status FROM service_call ORDER BY attempt") == [
        (0, "failed"),
        (1, "failed"),
        (2, "unknown"),
    ]
    assert violations(path) == []


async def test_109d_a_call_that_was_to_be_cancelled_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    [task] = await left_behind(path, G, "1")
    async with running_core(path, prefix="mid", now=START) as core:
        await core.ledger.commit(asked_to_cancel(path, task))
    adapter = ScriptedAdapter(G)
    async with survivor(path, adapter) as core:
        ended = await core.get(task)
    assert (ended.status.state, ended.status.message) == (TaskState.CANCELED, None)
    assert adapter.requests == []
    assert violations(path) == []


@BOTH
async def test_109d_what_its_process_was_cancelling_when_it_died_is_cancelled(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        adapter = ScriptedAdapter(ownership, [TextDelta("a"), Pause()])
        one.agent(adapter)
        task = await one.send("1", context="c", at_once=True)
        await soon(adapter.paused.wait())
        await one.get(task.id)
        lost = one.ledger.refuse(Finish)
        async with asyncio.TaskGroup() as group:
            canceling = group.create_task(one.cancel(task.id))
            await soon(lost.wait())
            canceling.cancel()
    async with survivor(path, ScriptedAdapter(ownership)) as core:
        ended = await core.get(task.id)
    assert (ended.status.state, answer(ended)) == (TaskState.CANCELED, "a")
    assert violations(path) == []


async def test_109d_a_call_that_was_cancelled_at_its_backend_when_its_process_died_is_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    began = CallStarted("r1")
    async with running_core(path, prefix="one") as one:
        adapter = ResumingAdapter([began, TextDelta("a"), Pause()])
        one.agent(adapter)
        task = await one.send("1", context="c", at_once=True)
        await soon(adapter.paused.wait())
        await one.get(task.id)
        lost = one.ledger.refuse(Finish)
        async with asyncio.TaskGroup() as group:
            canceling = group.create_task(one.cancel(task.id))
            await soon(lost.wait())
            canceling.cancel()
        assert adapter.cancelled == ["r1"]
    over = AdapterError(ErrorClass.BACKEND_FAILED, "the backend cancelled the response")
    resumed = ResumingAdapter(again=[[began, TextDelta("a"), over]])
    async with survivor(path, resumed) as core:
        await soon(core.runner.idle())
        ended = await core.get(task.id)
    assert resumed.resumed == ["r1"]
    assert (ended.status.state, answer(ended)) == (TaskState.CANCELED, "a")
    assert violations(path) == []


@BOTH
async def test_109d_a_turn_goes_on_behind_tools_whose_outcomes_are_stored(tmp_path: Path, ownership: Ownership) -> None:
    path = tmp_path / "ledger.db"
    asks: Script = [TextDelta("let me see "), ToolCallReady("c1", "add", "{}"), CallCompleted("r1")]
    async with running_core(path, prefix="one") as one:
        lost: list[asyncio.Event] = []

        def add(_: object) -> str:
            lost.append(one.ledger.refuse(Prepare))
            return "3"

        tools = ScriptedTools({"add": add})
        one.agent(ScriptedAdapter(ownership, asks), toolset=tools)
        task = await one.send("1", context="c", at_once=True)
        await until(lambda: lost)
        await soon(lost[0].wait())
    adapter = ScriptedAdapter(ownership, says("it is 3", "r2"))
    async with running_core(path, prefix="two", now=LATER, adapter=adapter) as core:
        await soon(core.runner.idle())
        ended = await core.get(task.id)
    assert (ended.status.state.name, answer(ended)) == ("COMPLETED", "let me see it is 3")
    assert len(tools.runs) == 1
    handle = "r1" if ownership is BR else None
    told = ["O c1 3"] if ownership is BR else ["U 1", "A let me see ", "C c1 add", "O c1 3"]
    assert adapter.sent == [(handle, told)]
    assert violations(path) == []


@BOTH
async def test_109d_the_answer_goes_on_in_its_artifact_behind_a_blank_line(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    report = ArtifactReady(Artifact(artifact_id="report", parts=(Part(text="a report"),)))
    asks: Script = [TextDelta("let me see"), report, ToolCallReady("c1", "add", "{}"), CallCompleted("r1")]
    async with running_core(path, prefix="one") as one:
        lost: list[asyncio.Event] = []

        def add(_: object) -> str:
            lost.append(one.ledger.refuse(Prepare))
            return "3"

        one.agent(ScriptedAdapter(ownership, asks), toolset=ScriptedTools({"add": add}))
        task = await one.send("1", context="c", at_once=True)
        await until(lambda: lost)
        await soon(lost[0].wait())
    async with survivor(path, ScriptedAdapter(ownership, says("it is 3", "r2"))) as core:
        await soon(core.runner.idle())
        ended = await core.get(task.id)
    texts = [[part.text for part in made.parts] for made in ended.artifacts or ()]
    assert texts == [["let me see\n\n", "it is 3"], ["a report"]]
    assert violations(path) == []


async def test_109d_a_call_that_is_made_again_goes_on_in_the_artifact_of_its_answer(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    asks: Script = [TextDelta("let me see"), ToolCallReady("c1", "add", "{}"), CallCompleted(None)]
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(G, asks, [pause]), toolset=ScriptedTools({"add": "3"}))
        task = await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
    async with survivor(path, ScriptedAdapter(G, says("it is 3"))) as core:
        await soon(core.runner.idle())
        ended = await core.get(task.id)
    assert [[part.text for part in made.parts] for made in ended.artifacts or ()] == [["let me see\n\n", "it is 3"]]
    assert violations(path) == []


# --- settings that changed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [[], [CallStarted("r1"), TextDelta("a")]], ids=["silent", "talking"])
async def test_29_a_turn_whose_agent_was_set_to_another_owner_meanwhile_fails_with_the_reason(
    tmp_path: Path, script: Script
) -> None:
    path = tmp_path / "ledger.db"
    pause = Pause()
    async with running_core(path, prefix="one") as core:
        core.agent(ResumingAdapter([*script, pause]))
        tasks = [(await core.send(text, context="c", at_once=True)).id for text in "12"]
        await soon(pause.reached.wait())
        await core.get(tasks[0])
    adapter = ScriptedAdapter(G)
    async with survivor(path, adapter) as core:
        assert [error_class(await core.get(task)) for task in tasks] == [OWNER_CONFLICT] * 2
    assert adapter.requests == []
    assert violations(path) == []


# --- what dies while it recovers --------------------------------------------------------------------------------------


@BOTH
async def test_109d_a_process_that_dies_again_and_again_before_what_waited_has_begun_loses_nothing(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    _, second = await left_behind(path, ownership, "1", "2", script=[TextDelta("a")])
    for number in range(5):
        lost: list[asyncio.Event] = []
        adapter = ScriptedAdapter(ownership)
        before = partial(_refuse_to_begin, lost)
        async with running_core(path, prefix=f"try{number}", now=LATER + number * 6000, adapter=adapter, before=before):
            await soon(lost[0].wait())
        assert adapter.requests == []
    async with survivor(path, ScriptedAdapter(ownership, says("b", "r2")), "last", LATER + 60000) as core:
        await soon(core.runner.idle())
        assert answer(await core.get(second)) == "b"
    assert violations(path) == []


async def test_109d_an_error_before_output_that_its_process_waited_on_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        one.waits.held = Pause()
        one.agent(ScriptedAdapter(BR, [AdapterError(ErrorClass.RATE_LIMITED, "slow down")]))
        task = await one.send("1", context="c", at_once=True)
        await soon(one.waits.held.reached.wait())
    adapter = ScriptedAdapter(BR, says("a", "r1"))
    async with survivor(path, adapter) as two:
        await soon(two.runner.idle())
        assert answer(await two.get(task.id)) == "a"
        assert len(two.ledger.stored(TakeOver)) == len(two.ledger.stored(Finish)) == 1
    assert adapter.sent == [(None, ["U 1"])]
    assert violations(path) == []


def _refuse_to_begin(lost: list[asyncio.Event], ledger: FragileLedger) -> None:
    lost.append(ledger.refuse(Prepare))
