"""What a failed turn means for the next one, with both values of `history.persistence`. Source: docs/state-model.md,
scenarios of groups C and D."""

from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Task, TaskState
from gateway.core.failures import TURN_TIMEOUT, UNKNOWN_TOOL
from gateway.core.history import INTERRUPTED
from gateway.ledger.calls import Prepare
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    CallStarted,
    ErrorClass,
    TextDelta,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from tests.support.core import START, Core, answer, query, running_core, said, soon, until
from tests.support.scripted import BR, G, Pause, Script, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
BS = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)
PER_TURN: dict[str, Any] = {"persistence": "per_turn", "unknown_tool": "fail"}
JOBS = "SELECT adapter, handle FROM delete_job ORDER BY handle"
HANDLED: Script = [ToolCallReady("c1", "add", "{}", handled=True), ToolResultReady("c1", "3")]
NOT_AVAILABLE = "This tool is not available."


def failed(task: Task) -> str | None:
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    return str((task.status.message.metadata or {}).get("errorClass"))


def rejected() -> AdapterError:
    """Not for what the request carries."""
    return AdapterError(ErrorClass.UNAUTHORISED, "401")


# --- open calls are repaired forward ---

OPEN: Script = [ToolCallReady("c1", "book", "{}"), ToolCallReady("c2", "pay", "{}"), CallCompleted("r2")]


async def test_37_the_next_message_on_a_handle_with_open_calls_brings_an_output_for_each(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), OPEN, says("A3", "r3"), says("A4", "r4"))
    core.agent(adapter, unknown_tool="fail")
    await core.send("1", context="c")
    assert failed(await core.send("2", context="c")) == UNKNOWN_TOOL
    for text in "34":
        await core.send(text, context="c")
    assert adapter.sent[2:] == [
        ("r2", [f"O c1 {NOT_AVAILABLE}", f"O c2 {NOT_AVAILABLE}", "U 3"]),
        ("r3", ["U 4"]),
    ]


async def test_37_the_outputs_of_open_calls_are_sent_until_the_backend_has_them(core: Core) -> None:
    adapter = ScriptedAdapter(BR, OPEN, [rejected()], says("A3", "r3"))
    core.agent(adapter, unknown_tool="fail")
    for text in "123":
        await core.send(text, context="c")
    outputs = [f"O c1 {NOT_AVAILABLE}", f"O c2 {NOT_AVAILABLE}"]
    assert adapter.sent[1:] == [("r2", [*outputs, "U 2"]), ("r2", [*outputs, "U 2", "U 3"])]


async def test_37_an_open_call_that_the_chain_does_not_hold_is_not_answered_there(core: Core) -> None:
    without_id: Script = [ToolCallReady("c1", "book", "{}"), CallCompleted()]
    adapter = ScriptedAdapter(BR, says("A1", "r1"), without_id, says("A3", "r3"))
    core.agent(adapter, on_missing_handle="tolerate")
    for text in "123":
        await core.send(text, context="c")
    assert adapter.sent[2] == ("r1", ["U 2", "U 3"])


async def test_38_open_calls_of_a_static_conversation_are_repaired_forward(core: Core) -> None:
    fails: Script = [CallStarted("c1"), AdapterError(ErrorClass.BACKEND_FAILED, "")]
    adapter = ScriptedAdapter(BS, says("A1", "c1"), [*OPEN[:2], CallCompleted("c1")], fails, says("A4", "c1"))
    core.agent(adapter, unknown_tool="fail")
    for text in "1234":
        await core.send(text, context="c")
    outputs = [f"O c1 {NOT_AVAILABLE}", f"O c2 {NOT_AVAILABLE}"]
    assert adapter.sent[1:] == [("c1", ["U 2"]), ("c1", [*outputs, "U 3"]), ("c1", [*outputs, "U 3", "U 4"])]
    assert query(core.path, JOBS) == []


@BOTH
async def test_53_trailing_results_are_stored_and_shown_first_by_either_owner(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, OPEN, says("A2", "r3"))
    core.agent(adapter, unknown_tool="fail")
    await core.send("1", context="c")
    unsent = query(core.path, "SELECT count(*) FROM history_item WHERE kind = 'output' AND sent_in IS NULL")
    assert unsent == [(2 if ownership is BR else 0,)]
    await core.send("2", context="c")
    outputs = [f"O c1 {NOT_AVAILABLE}", f"O c2 {NOT_AVAILABLE}"]
    if ownership is BR:
        assert adapter.sent[1] == ("r2", [*outputs, "U 2"])
    else:
        assert sorted(adapter.sent[1][1]) == sorted(["U 1", "C c1 book", "C c2 pay", *outputs, "U 2"])


# --- the process dies, the outcome is unknown ---


async def test_51_a_call_that_the_backend_completed_and_nobody_recorded_leaves_the_old_handle(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    pause = Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(BR, says("A1", "r1"), [CallStarted("r2"), TextDelta("A2"), pause]))
        await one.send("1", context="c")
        task = await one.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
        await one.get(task.id)
    async with running_core(path, prefix="two", now=START + 6000) as two:
        adapter = ScriptedAdapter(BR, says("A3", "r3"))
        two.agent(adapter)
        assert failed(await two.get(task.id)) == "gateway-restarted"
        assert query(path, "SELECT status, pending_handle, handle_out FROM service_call ORDER BY rowid")[1] == (
            "unknown",
            "r2",
            None,
        )
        await two.send("3", context="c")
    assert adapter.sent == [("r1", ["U 2", "U 3"])]


@BOTH
async def test_51_with_per_turn_the_turn_of_a_process_that_died_has_not_been(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    pause = Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(ownership, says("A1", "r1"), [*HANDLED, pause]))
        await one.send("1", context="c")
        await one.send("2", context="c", at_once=True)
        await soon(pause.reached.wait())
    async with running_core(path, prefix="two", now=START + 6000) as two:
        adapter = ScriptedAdapter(ownership, says("A3", "r3"))
        two.agent(adapter, **PER_TURN)
        await two.send("3", context="c")
    assert adapter.sent == [("r1", ["U 3"]) if ownership is BR else (None, ["U 1", "A A1", "U 3"])]


ENDINGS: dict[str, Script] = {
    "the stream is cut": [CallStarted("r2"), TextDelta("par"), AdapterError(ErrorClass.INTERRUPTED, "")],
    "the backend fails": [CallStarted("r2"), AdapterError(ErrorClass.BACKEND_FAILED, "")],
    "no id at the end": [CallStarted("r2"), TextDelta("A2"), CallCompleted()],
}


@pytest.mark.parametrize("policies", [{}, PER_TURN], ids=["per_service_call", "per_turn"])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_58_the_response_of_a_call_that_failed_is_left_for_deletion(
    core: Core, ending: str, policies: dict[str, Any]
) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), ENDINGS[ending], says("A3", "r3"))
    core.agent(adapter, **policies)
    for text in "123":
        await core.send(text, context="c")
    assert adapter.sent[2] == ("r1", ["U 3"] if policies else ["U 2", "U 3"])
    assert query(core.path, JOBS) == [("echo", "r2")]
    assert query(core.path, "SELECT handle FROM thread") == [("r3",)]


async def test_58_the_response_of_a_call_that_was_canceled_is_left_for_deletion(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(BR, [CallStarted("r1"), TextDelta("a"), pause]))
    task = await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    await core.cancel(task.id)
    assert query(core.path, JOBS) == [("echo", "r1")]


# --- history.persistence: per_turn ---


@BOTH
async def test_47_with_per_turn_a_message_that_is_sent_again_is_alone_in_the_view(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, [rejected()], says("A2", "r2"))
    core.agent(adapter, **PER_TURN)
    first = await core.send("hi", context="c")
    second = await core.send("hi", context="c")
    assert adapter.sent == [(None, ["U hi"])] * 2
    assert first.id != second.id
    assert query(core.path, "SELECT count(*) FROM history_item WHERE kind = 'user'") == [(2,)]


@BOTH
async def test_52_with_per_turn_nothing_of_a_turn_that_failed_is_shown_to_the_model(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, [*HANDLED, *says("A1", "r1")], OPEN, says("A3", "r3"), says("A4", "r4"))
    core.agent(adapter, **PER_TURN)
    for text in "1234":
        await core.send(text, context="c")
    if ownership is BR:
        assert adapter.sent == [(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 3"]), ("r3", ["U 4"])]
    else:
        first = ["U 1", "C c1 add", "O c1 3", "A A1"]
        assert adapter.sent[2:] == [(None, [*first, "U 3"]), (None, [*first, "U 3", "A A3", "U 4"])]


@BOTH
async def test_54_the_view_after_turns_that_succeeded_does_not_depend_on_the_setting(
    tmp_path: Path, ownership: Ownership
) -> None:
    seen = []
    for policies in ({}, PER_TURN):
        async with running_core(tmp_path / f"{len(policies)}.db") as core:
            adapter = ScriptedAdapter(ownership, [*HANDLED, *says("A1", "r1")], says("A2", "r2"), says("A3", "r3"))
            core.agent(adapter, **policies)
            for text in "123":
                await core.send(text, context="c")
            rows = [query(core.path, f"SELECT * FROM {table}") for table in ("history_item", "service_call", "thread")]
            seen.append((adapter.sent, rows))
    assert seen[0] == seen[1]


@BOTH
async def test_59_with_per_turn_a_failed_turn_is_left_out_whole_and_stays_in_the_record(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, says("A1", "r1"), [TextDelta("par"), rejected()], says("A3", "r3"))
    core.agent(adapter, **PER_TURN)
    await core.send("1", context="c")
    task = await core.send("2", context="c")
    await core.send("3", context="c")
    assert adapter.sent[2] == (("r1", ["U 3"]) if ownership is BR else (None, ["U 1", "A A1", "U 3"]))
    shown = await core.get(task.id)
    assert (shown.status.state, said(shown), answer(shown)) == (TaskState.FAILED, ["U 2"], "par")
    assert query(core.path, "SELECT count(*) FROM history_item") == [(6,)]


async def test_59_with_per_turn_a_turn_that_moved_the_chain_and_failed_goes_back_and_leaves_its_branch(
    core: Core,
) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"), OPEN, says("A3", "r3"))
    core.agent(adapter, **PER_TURN)
    await core.send("1", context="c")
    assert failed(await core.send("2", context="c")) == UNKNOWN_TOOL
    assert query(core.path, "SELECT handle, clean_handle FROM thread") == [("r1", "r1")]
    assert query(core.path, JOBS) == [("echo", "r2")]
    assert query(core.path, "SELECT handle_in, handle_out FROM service_call ORDER BY rowid") == [
        (None, "r1"),
        ("r1", "r2"),
    ]
    await core.send("3", context="c")
    assert adapter.sent[2] == ("r1", ["U 3"])


async def test_59_with_per_turn_turns_that_wait_go_on_from_where_the_failed_one_began(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(BR, says("A1", "r1"), [pause, *OPEN], says("A3", "r3"), says("A4", "r4"))
    core.agent(adapter, **PER_TURN)
    await core.send("1", context="c")
    for text in "234":
        await core.send(text, context="c", at_once=True)
    pause.go.set()
    await soon(core.runner.idle())
    assert adapter.sent[1:] == [("r1", ["U 2"]), ("r1", ["U 3"]), ("r3", ["U 4"])]


async def test_59_with_per_turn_a_rebuilt_conversation_whose_turn_failed_begins_anew(core: Core) -> None:
    adapter = ScriptedAdapter(
        BR, says("A1", "r1"), [AdapterError(ErrorClass.HANDLE_EXPIRED, "")], OPEN, says("A3", "q1"), says("A4", "q2")
    )
    core.agent(adapter, on_lost_handle="rebuild", **PER_TURN)
    for text in "1234":
        await core.send(text, context="c")
    assert adapter.sent[2:] == [(None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 3"]), ("q1", ["U 4"])]


@BOTH
async def test_59_with_per_turn_a_canceled_turn_stays(core: Core, ownership: Ownership) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(ownership, says("A1", "r1"), [TextDelta("par"), pause], says("A3", "r3"))
    core.agent(adapter, **PER_TURN)
    await core.send("1", context="c")
    task = await core.send("2", context="c", at_once=True)
    await soon(pause.reached.wait())
    await core.cancel(task.id)
    await core.send("3", context="c")
    if ownership is BR:
        assert adapter.sent[2] == ("r1", ["U 2", f"U {INTERRUPTED}par", "U 3"])
    else:
        assert adapter.sent[2] == (None, ["U 1", "A A1", "U 2", "A par", "U 3"])


async def test_59_with_per_turn_a_turn_that_failed_before_its_call_leaves_the_handle_alone(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(BR, says("A1", "r1"), [pause, *says("A2", "r2")], says("A4", "r4"))
    core.agent(adapter, **PER_TURN)
    await core.send("1", context="c")
    await core.send("2", context="c", at_once=True)
    await soon(pause.reached.wait())
    core.agent(adapter, turn_timeout=0.5, **PER_TURN)
    third = await core.send("3", context="c", at_once=True)
    work = core.runner.run_of(third.id)
    assert work is not None
    gate = core.ledger.hold(Prepare)
    pause.go.set()
    await soon(gate.reached.wait())
    await until(lambda: work.task is not None and work.task.cancelling())
    core.ledger.let_go()
    await soon(core.runner.idle())
    assert failed(await core.get(third.id)) == TURN_TIMEOUT
    assert query(core.path, "SELECT handle FROM thread") == [("r2",)]
    core.agent(adapter, **PER_TURN)
    await core.send("4", context="c")
    assert adapter.sent[2] == ("r2", ["U 4"])
