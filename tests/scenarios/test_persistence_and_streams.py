"""Scenarios D to H of the state model, by their numbers: what is stored when, tool calls of backends, streams, repeats."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a import tool_calls
from gateway.a2a.errors import InvalidParams, Unanswered, UnsupportedOperation
from gateway.a2a.model import Message, Part, StreamResponse, TaskState
from gateway.ledger.calls import Complete
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.tasks import Finish
from gateway.ledger.turns import Accept
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    Ending,
    ErrorClass,
    PartReady,
    Progress,
    ReasoningDelta,
    ServiceRequest,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import Ownership
from gateway.scheduling.leases import LeaseTimes
from tests.support.core import (
    Core,
    answer,
    events,
    frames,
    logged,
    message,
    numbers,
    query,
    reason,
    running_core,
    said,
    soon,
    states,
    streamed,
)
from tests.support.rows import everything
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
TOOLS: Script = [
    ReasoningDelta("hm"),
    ToolCallAnnounced("c1", "add"),
    ToolCallArguments("c1", '{"a":'),
    ToolCallArguments("c1", "1}"),
    ToolCallReady("c1", "add", '{"a":1}', handled=True, server="mcp:sums"),
    ToolResultReady("c1", "3"),
]
FULL: Script = [Progress("on it"), *TOOLS, TextDelta("thr"), PartReady(Part(data={"n": 3})), *says("ee", "r1")]


def echo(request: ServiceRequest) -> Script:
    text = request.message.parts[0].text
    return says(f"re {text}", f"r-{text}")


# --- D. persistence and atomicity ---


async def test_45_a_message_is_durable_before_the_first_upstream_byte(core: Core) -> None:
    found: list[tuple[Any, ...]] = []

    def look(_: ServiceRequest) -> Script:
        sql = "SELECT input.key, turn.status, history_item.kind FROM input, turn, history_item"
        found.extend(query(core.path, sql))
        return says("a")

    core.agent(ScriptedAdapter(G, otherwise=look))
    await core.send("hi", core.call(key="k"))
    assert found == [("k", "running", "user")]


async def test_45_a_task_id_is_told_after_the_commit(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    gate = core.ledger.hold(Accept)
    async with asyncio.TaskGroup() as group:
        streaming = group.create_task(core.stream("1"))
        sending = group.create_task(core.send("2", at_once=True))
        await soon(gate.reached.wait())
        await asyncio.sleep(0)
        assert not streaming.done()
        assert not sending.done()
        core.ledger.let_go()
    await streaming.result().aclose()


@BOTH
async def test_46_a_message_survives_the_failure_of_its_call(core: Core, ownership: Ownership) -> None:
    core.agent(ScriptedAdapter(ownership, [AdapterError(ErrorClass.TIMED_OUT, "")]))
    task = await core.send("hi", core.call(key="k"))
    read = await core.get(task.id)
    assert (read.status.state, said(read)) == (TaskState.FAILED, ["U hi"])
    assert query(core.path, "SELECT key, task FROM input JOIN turn ON turn.id = input.turn") == [("k", task.id)]


@BOTH
async def test_47_a_repeat_after_a_failure_gets_the_failed_task_and_a_new_message_is_a_new_turn(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, [AdapterError(ErrorClass.UNAUTHORISED, "")], says("b", "r1"))
    core.agent(adapter)
    failed = await core.send("hi", core.call(key="k"), context="c")
    assert await core.send("hi", core.call(key="k"), context="c") == failed
    assert len(adapter.requests) == 1
    assert query(core.path, "SELECT count(*) FROM history_item WHERE kind = 'user'") == [(1,)]
    again = await core.send("hi", context="c")
    assert again.id != failed.id
    assert adapter.sent[1] == (None, ["U hi", "U hi"])


@BOTH
async def test_48_items_handle_and_usage_of_a_call_are_one_commit(core: Core, ownership: Ownership) -> None:
    core.agent(ScriptedAdapter(ownership, [*TOOLS, TextDelta("a"), CallCompleted("r1", usage={"tokens": 7})]))
    gate = core.ledger.hold(Complete)
    await core.send("hi", at_once=True)
    await soon(gate.reached.wait())
    sql = "SELECT (SELECT count(*) FROM history_item), handle, usage, status FROM thread, service_call"
    assert query(core.path, sql) == [(1, None, None, "prepared")]
    core.ledger.let_go()
    await soon(core.runner.idle())
    handle = "r1" if ownership is BR else None
    assert query(core.path, sql) == [(5, handle, '{"tokens":7}', "completed")]


async def test_52_what_happened_before_a_failing_call_stays_coherent(core: Core) -> None:
    adapter = ScriptedAdapter(
        G, [*TOOLS[1:], *says("A1")], [*TOOLS[1:], AdapterError(ErrorClass.INTERRUPTED, "")], says("A3")
    )
    core.agent(adapter)
    for text in "123":
        await core.send(text, context="c")
    assert adapter.sent[2] == (None, ["U 1", "C c1 add", "O c1 3", "A A1", "U 2", "U 3"])


async def test_55_a_message_that_cannot_be_stored_goes_nowhere(core: Core) -> None:
    adapter = ScriptedAdapter(G, says("a"))
    core.agent(adapter)
    core.ledger.refuse(Accept)
    with pytest.raises(LedgerUnavailable):
        await core.send("hi")
    assert adapter.requests == []


@BOTH
async def test_56_a_call_that_cannot_be_recorded_is_not_told_as_complete(tmp_path: Path, ownership: Ownership) -> None:
    async with running_core(tmp_path / "ledger.db", lease=LeaseTimes(0.03)) as core:
        core.agent(ScriptedAdapter(ownership, says("a", "r1")))
        core.ledger.refuse(Complete)
        with pytest.raises(Unanswered):
            await core.send("hi", context="c")
        with suppress(UnsupportedOperation):  # recovery has been faster
            assert states(await frames(await core.subscribe("id-0001")))[-1:] == ["FAILED"]
        assert (await core.get("id-0001")).status.state is TaskState.FAILED
        assert query(core.path, "SELECT handle FROM thread") == [(None,)]


@BOTH
async def test_57_a_turn_whose_caller_went_away_runs_to_its_end(core: Core, ownership: Ownership) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(ownership, [TextDelta("a"), pause, *says("b", "r1")]))
    stream = await core.stream("1", context="c")
    await soon(anext(aiter(stream)))
    await stream.aclose()
    pause.go.set()
    await soon(core.runner.idle())
    task = (await core.list(include_artifacts=True)).tasks[0]
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "ab")
    assert query(core.path, "SELECT status FROM service_call") == [("completed",)]


@BOTH
async def test_58_the_text_of_a_cut_stream_is_kept_and_never_shown_to_the_model(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(
        ownership, [TextDelta("half of"), AdapterError(ErrorClass.INTERRUPTED, "")], says("b", "r1")
    )
    core.agent(adapter)
    task = await core.send("1", context="c")
    assert (task.status.state, answer(task)) == (TaskState.FAILED, "half of")
    assert query(core.path, "SELECT replayable, payload FROM history_item WHERE kind = 'assistant'") == [
        (0, '{"kind":"assistant","parts":[{"text":"half of"}]}')
    ]
    await core.send("2", context="c")
    assert adapter.sent == [(None, ["U 1"]), (None, ["U 1", "U 2"])]


@pytest.mark.parametrize("kind", [Accept, Finish])
async def test_61_a_commit_is_not_interrupted_by_the_end_of_its_request(core: Core, kind: type) -> None:
    core.agent(ScriptedAdapter(G, says("a")))
    gate = core.ledger.hold(kind)
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(core.send("hi"))
        await soon(gate.reached.wait())
        sending.cancel()
        await asyncio.sleep(0)
        core.ledger.let_go()
    await soon(core.runner.idle())
    [task] = (await core.list(include_artifacts=True)).tasks
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "a")


# --- E and F. tool calls ---


def phases(told: list[Message | None], metadata: list[dict[str, Any] | None]) -> list[dict[str, Any]]:
    places = [part.metadata for entry in told if entry for part in entry.parts] + metadata
    return [place[tool_calls.URI] for place in places if place and tool_calls.URI in place]


async def test_85_a_tool_that_the_backend_runs_is_seen_from_outside_and_not_run_again(core: Core) -> None:
    adapter = ScriptedAdapter(G, [*TOOLS, *says("three")])
    core.agent(adapter)
    read = events(await frames(await core.stream("hi")))
    updates = [event.status_update for event in read if event.status_update]
    told = [fact for u in updates for fact in phases([u.status.message], [u.metadata])]
    assert [fact["phase"] for fact in told] == [
        "args-delta",
        "args-delta",
        "args-delta",
        "requested",
        "executing",
        "succeeded",
    ]
    assert {(fact["origin"], fact["name"]) for fact in told} == {("backend", "add")}
    assert len(adapter.requests) == 1


@pytest.mark.parametrize("output", ["", [], 0, False], ids=repr)
async def test_88_an_empty_result_is_an_outcome(core: Core, output: Any) -> None:
    called = ToolCallReady("c1", "add", "{}", handled=True)
    adapter = ScriptedAdapter(G, [called, ToolResultReady("c1", output), *says("A1")], says("A2"))
    core.agent(adapter)
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert adapter.sent[1][1] == ["U 1", "C c1 add", f"O c1 {output}", "A A1", "U 2"]
    assert query(core.path, "SELECT status, outcome IS NOT NULL FROM tool_call") == [("completed", 1)]


async def test_91_an_empty_text_beside_calls_is_dropped(core: Core) -> None:
    adapter = ScriptedAdapter(G, [TextDelta(""), *TOOLS[1:], PartReady(Part(text="")), CallCompleted()], says("A2"))
    core.agent(adapter)
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert adapter.sent[1][1] == ["U 1", "C c1 add", "O c1 3", "U 2"]


@BOTH
async def test_94_what_happened_in_a_canceled_turn_stays_in_the_ledger(core: Core, ownership: Ownership) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(ownership, [*TOOLS, TextDelta("thr"), pause]))
    task = await core.send("hi", at_once=True)
    await soon(pause.reached.wait())
    await core.cancel(task.id)
    assert query(core.path, "SELECT kind, replayable FROM history_item ORDER BY position") == [
        ("user", 1),
        ("reasoning", 0),
        ("call", 0),
        ("output", 0),
        ("assistant", 1),
    ]
    assert answer(await core.get(task.id)) == "thr"


# --- G. streaming equals not streaming ---

LEDGER = {
    "thread": "handle, generation, adapter_state",
    "task": "state, last_event, visible",
    "turn": "number, status, last_event",
    "service_call": "round, attempt, status, handle_in, pending_handle, handle_out, usage",
    "history_item": "position, kind, replayable, provider_id, sent_in IS NULL",
    "tool_call": "sequence, external_id, name, arguments, executor, status, outcome",
}
SCRIPTS: dict[str, Script] = {
    "everything": FULL,
    "nothing": [CallCompleted("r1")],
    "a question": [TextDelta("a"), CallCompleted("r1", Ending.INPUT_REQUIRED, (Part(text="which?"),))],
    "a failure": [TextDelta("a"), AdapterError(ErrorClass.INTERRUPTED, "")],
}


@pytest.mark.parametrize("script", SCRIPTS)
@BOTH
async def test_101_the_ledger_is_the_same_streamed_or_not(tmp_path: Path, ownership: Ownership, script: str) -> None:
    outcomes = []
    for way in ("send", "stream"):
        async with running_core(tmp_path / f"{way}.db") as core:
            core.agent(ScriptedAdapter(ownership, SCRIPTS[script]))
            if way == "send":
                await core.send("hi", context="c")
            else:
                await frames(await core.stream("hi", context="c"))
            task = await core.get("id-0001")
            rows = {name: query(core.path, f"SELECT {columns} FROM {name}") for name, columns in LEDGER.items()}
            outcomes.append((task, rows, "".join(str(payload) for _, payload in logged(core.path, task.id))))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("script", SCRIPTS)
async def test_102_a_stream_is_a_task_then_updates_and_ends_with_the_state_that_ends_it(
    core: Core, script: str
) -> None:
    core.agent(ScriptedAdapter(BR, SCRIPTS[script]))
    read = await frames(await core.stream("hi"))
    first, *rest = events(read)
    assert first.task is not None
    assert all(event.status_update or event.artifact_update for event in rest)
    assert rest[-1].status_update is not None
    assert rest[-1].status_update.status.state in {TaskState.COMPLETED, TaskState.INPUT_REQUIRED, TaskState.FAILED}
    ending = [event for event in rest if event.status_update and event.status_update.status.state.name != "WORKING"]
    assert ending == rest[-1:]
    assert numbers(read) == list(range(len(read)))


async def test_103_a_caller_that_did_not_stream_finds_the_same_tool_calls_in_the_record(core: Core) -> None:
    core.agent(ScriptedAdapter(G, FULL))
    read = events(await frames(await core.stream("hi", context="c")))
    shown = [event.status_update.status.message for event in read if event.status_update]
    task = await core.get("id-0001")
    assert task.history is not None
    assert list(task.history[1:]) == [entry for entry in shown if entry is not None]
    facts = phases(list(task.history), [])
    assert [fact["phase"] for fact in facts] == ["requested", "succeeded"]
    assert len({fact["callId"] for fact in facts}) == 1


LEAKS: list[BaseException] = [AdapterError(kind, "postgres://u:hunter2@db sk-proj-hunter2") for kind in ErrorClass]


@pytest.mark.parametrize("fault", [*LEAKS, RuntimeError("hunter2"), KeyError("hunter2")], ids=repr)
async def test_104_an_error_is_told_from_a_fixed_table(core: Core, fault: BaseException) -> None:
    core.agent(ScriptedAdapter(G, [fault]))
    read = await frames(await core.stream("hi", context="c"))
    assert b"hunter2" not in b"".join(payload for _, payload in read)
    assert reason(await core.get("id-0001")).endswith("(correlation id c0ffee)")
    assert "hunter2" not in everything(core.path)


@BOTH
async def test_105_a_stream_that_just_ends_is_a_failure(core: Core, ownership: Ownership) -> None:
    core.agent(ScriptedAdapter(ownership, [TextDelta("all is well")]))
    assert reason(await core.send("hi"))


async def test_106_a_subscriber_comes_back_without_gap_or_repeat_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(G, FULL))
        whole = await frames(await core.stream("hi", context="c"))
    async with running_core(path, prefix="two") as core:
        core.agent(ScriptedAdapter(G))
        for last in range(len(whole)):
            read = await frames(await core.subscribe("one-0001", core.call(last=last)))
            assert read[1:] == whole[last + 1 :]
            assert streamed(read) == streamed(whole)


async def test_106_on_a_waiting_task_the_subscription_stays_for_what_comes_next(core: Core) -> None:
    core.agent(ScriptedAdapter(G, SCRIPTS["a question"], says("b")))
    asked = await core.send("hi")
    stream = await core.subscribe(asked.id)
    await core.send("this one", task=asked.id)
    assert states(await frames(stream)) == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]


# --- H. repeats ---


async def test_107_a_running_turn_is_attached_to(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [TextDelta("a"), pause, *says("b")])
    core.agent(adapter)
    call = core.call(key="k")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(core.send("hi", call))
        await soon(pause.reached.wait())
        again = group.create_task(core.send("hi", call))
        stream = await core.stream("hi", call)
        pause.go.set()
    assert first.result() == again.result()
    assert isinstance(events(await frames(stream))[0], StreamResponse)
    assert len(adapter.requests) == 1


async def test_107_a_waiting_task_is_returned(core: Core) -> None:
    core.agent(ScriptedAdapter(G, SCRIPTS["a question"]))
    asked = await core.send("hi", core.call(key="k"))
    assert await core.send("hi", core.call(key="k")) == asked


async def test_107_two_at_the_same_moment_are_one(core: Core) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    core.agent(adapter)
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(core.send("hi", core.call(key="k"))) for _ in range(2)]
    assert both[0].result() == both[1].result()
    assert len(adapter.requests) == 1


async def test_107_other_content_under_the_same_key_is_refused_and_nothing_is_written(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    await core.send("hi", core.call(key="k"))
    units = len(core.ledger.units)
    for changed in ({"text": "ho"}, {"text": "hi", "context": "c"}, {"text": "hi", "references": ("id-0001",)}):
        with pytest.raises(InvalidParams, match="Idempotency-Key: 'k' was used for another message"):
            await core.send(call=core.call(key="k"), **changed)
    assert len(core.ledger.units) == units


async def test_107_without_a_key_a_message_id_may_come_again_within_a_task_and_beside_it(core: Core) -> None:
    adapter = ScriptedAdapter(G, SCRIPTS["a question"], otherwise=echo)
    core.agent(adapter)
    asked = await core.send("same", context="c", message_id="m")
    await core.send("same", task=asked.id, message_id="m")
    await core.send("same", context="c", message_id="m")
    assert adapter.sent[2][1] == ["U same", "A a", "A which?", "U same", "A re same", "U same"]
    assert said(await core.get(asked.id)) == ["U same", "A which?", "U same"]


async def test_107_off_ignores_the_header(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo), idempotency="off")
    tasks = {(await core.send("hi", core.call(key="k"))).id for _ in range(2)}
    assert len(tasks) == 2


async def test_107_a_message_that_was_refused_leaves_its_key_unused(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo))
    done = await core.send("1")
    with pytest.raises(UnsupportedOperation):
        await core.send("2", core.call(key="k"), task=done.id)
    assert answer(await core.send("3", core.call(key="k"))) == "re 3"


async def test_107_header_and_message_id_never_meet(core: Core) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo), idempotency="message_id")
    by_id = await core.send("hi", message_id="x")
    by_header = await core.send("ho", core.call(key="x"), message_id="y")
    assert by_id.id != by_header.id
    assert message("hi").message_id == "m"
