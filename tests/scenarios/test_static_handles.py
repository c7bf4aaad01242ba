"""A static conversation at the backend (BS). Source: docs/state-model.md, scenarios by their numbers."""

from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Part, Task
from gateway.ledger.calls import NameCall
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, Ending, ErrorClass, TextDelta, ToolCallReady
from tests.support.core import Core, query, running_core, soon
from tests.support.scripted import BS, Pause, Script, ScriptedAdapter, says


def told(task: Task) -> tuple[str, Any]:
    """How a task ended, and the class of its failure."""
    message = task.status.message
    return task.status.state.name, (message.metadata or {}).get("errorClass") if message else None


COMPLETED = ("COMPLETED", None)
BROKEN = ("FAILED", ErrorClass.CONTRACT_BROKEN)


def made(text: str, handle: str) -> Script:
    """A first call, which makes the conversation before it says anything in it."""
    return [CallStarted(handle), *says(text, handle)]


def calls(path: Path) -> list[tuple[Any, ...]]:
    return query(path, "SELECT handle_in, pending_handle, handle_out FROM service_call ORDER BY prepared_at, id")


def deletions(path: Path) -> list[str]:
    return [handle for (handle,) in query(path, "SELECT handle FROM delete_job")]


def thread(path: Path) -> list[tuple[Any, ...]]:
    return query(path, "SELECT handle_kind, handle FROM thread")


async def test_3_turn_2_reaches_another_process_and_goes_on_in_the_conversation(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(BS, made("A1", "c")))
        await one.send("1", context="x")
    async with running_core(path, prefix="two") as two:
        adapter = ScriptedAdapter(BS, [CallStarted("c"), *says("A2", "c")])
        two.agent(adapter)
        assert told(await two.send("2", context="x")) == COMPLETED
    assert adapter.sent == [("c", ["U 2"])]
    assert thread(path) == [("static", "c")]


async def test_18_the_kind_of_handle_is_kept_with_the_thread_before_anything_is_sent(core: Core) -> None:
    core.agent(ScriptedAdapter(BS, [AdapterError(ErrorClass.UNREACHABLE, "")]))
    await core.send("1", context="x")
    assert thread(core.path) == [("static", None)]


async def test_15_an_upstream_that_answers_under_another_name_fails_the_turn_and_the_handle_stays(core: Core) -> None:
    await renamed(core, says("A2", "other"))


async def test_27_another_handle_in_the_echo_is_a_conflict_and_none_to_adopt(core: Core) -> None:
    await renamed(core, [CallStarted("other"), *says("A2", "c")])


async def renamed(core: Core, renaming: Script) -> None:
    adapter = ScriptedAdapter(BS, made("A1", "c"), renaming, says("A3", "c"))
    core.agent(adapter)
    tasks = [await core.send(text, context="x") for text in "123"]
    assert [told(task) for task in tasks] == [COMPLETED, BROKEN, COMPLETED]
    assert [handle for handle, _ in adapter.sent] == [None, "c", "c"]
    assert thread(core.path) == [("static", "c")]


async def test_25_a_completed_call_need_not_name_a_static_handle_again(core: Core) -> None:
    adapter = ScriptedAdapter(BS, made("A1", "c"), [TextDelta("A2"), CallCompleted()], says("A3", "c"))
    core.agent(adapter)
    tasks = [await core.send(text, context="x") for text in "123"]
    assert [told(task) for task in tasks] == [COMPLETED] * 3
    assert [(await core.get(task.id)).metadata for task in tasks] == [None] * 3
    assert adapter.sent == [(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 3"])]


async def test_25_but_the_first_one_must(core: Core) -> None:
    core.agent(ScriptedAdapter(BS, [TextDelta("A1"), CallCompleted()]))
    assert told(await core.send("1", context="x"))[0] == "FAILED"


async def test_35_a_conversation_is_stored_before_anything_is_said_in_it(core: Core) -> None:
    asking = Pause()
    core.agent(ScriptedAdapter(BS, [CallStarted("c"), asking, *says("A1", "c")]))
    gate = core.ledger.hold(NameCall)
    task = await core.send("1", context="x", at_once=True)
    await soon(gate.reached.wait())
    await core.get(task.id)  # whatever else goes on meanwhile
    assert not asking.reached.is_set()
    core.ledger.let_go()
    await soon(asking.reached.wait())
    assert calls(core.path) == [(None, "c", None)]
    assert thread(core.path) == [("static", None)]
    asking.go.set()
    await soon(core.runner.idle())
    assert (calls(core.path), thread(core.path)) == ([(None, "c", "c")], [("static", "c")])


async def test_35_where_it_cannot_be_stored_nothing_is_said_in_it(core: Core) -> None:
    asking = Pause()
    adapter = ScriptedAdapter(BS, [CallStarted("c"), asking])
    core.agent(adapter)
    lost = core.ledger.refuse(NameCall)
    await core.send("1", context="x", at_once=True)
    await soon(lost.wait())
    await soon(core.runner.idle())
    assert not asking.reached.is_set()
    assert adapter.broken_off == 1


@pytest.mark.parametrize(
    "failure",
    [
        [AdapterError(ErrorClass.UNAUTHORISED, "400")],
        [TextDelta("par"), AdapterError(ErrorClass.INTERRUPTED, "cut")],
    ],
    ids=["rejected", "cut"],
)
async def test_35_a_first_call_that_fails_leaves_its_conversation_pending_and_the_next_turn_makes_its_own(
    core: Core, failure: Script
) -> None:
    """Whatever landed in the first one, nothing of it is said twice in the second."""
    adapter = ScriptedAdapter(BS, [CallStarted("c1"), *failure], made("A2", "c2"), says("A3", "c2"))
    core.agent(adapter)
    tasks = [await core.send(text, context="x") for text in "123"]
    assert [told(task)[0] for task in tasks] == ["FAILED", "COMPLETED", "COMPLETED"]
    assert adapter.sent == [(None, ["U 1"]), (None, ["U 1", "U 2"]), ("c2", ["U 3"])]
    assert calls(core.path) == [(None, "c1", None), (None, "c2", "c2"), ("c2", None, "c2")]


async def test_35_a_first_call_that_is_tried_again_stays_in_the_conversation_that_it_has_made(core: Core) -> None:
    busy = AdapterError(ErrorClass.RATE_LIMITED, "429")
    adapter = ScriptedAdapter(BS, [CallStarted("c"), busy], [busy], says("A1", "c"), says("A2", "c"))
    core.agent(adapter)
    tasks = [await core.send(text, context="x") for text in "12"]
    assert [told(task) for task in tasks] == [COMPLETED] * 2
    assert adapter.sent == [(None, ["U 1"]), ("c", ["U 1"]), ("c", ["U 1"]), ("c", ["U 2"])]
    assert calls(core.path) == [(None, "c", None)] * 2 + [(None, "c", "c"), ("c", None, "c")]


async def test_35_a_failure_in_a_known_conversation_leaves_it_where_it_is(core: Core) -> None:
    adapter = ScriptedAdapter(
        BS, made("A1", "c"), [CallStarted("c"), AdapterError(ErrorClass.UNAUTHORISED, "")], says("A3", "c")
    )
    core.agent(adapter)
    tasks = [await core.send(text, context="x") for text in "123"]
    assert [told(task) for task in tasks] == [COMPLETED, ("FAILED", ErrorClass.UNAUTHORISED), COMPLETED]
    assert adapter.sent == [(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 2", "U 3"])]
    # Unlike the pending response of a chain, the conversation is nothing to delete.
    assert deletions(core.path) == []


async def test_38_open_calls_are_answered_in_the_conversation_together_with_the_next_message(core: Core) -> None:
    open_calls = [ToolCallReady("c1", "add", "{}"), ToolCallReady("c2", "add", "{}")]
    adapter = ScriptedAdapter(BS, [*open_calls, CallCompleted("c")], says("A2", "c"), says("A3", "c"))
    core.agent(adapter, unknown_tool="fail")
    for text in "123":
        await core.send(text, context="x")
    refused = "This tool is not available."
    assert adapter.sent == [(None, ["U 1"]), ("c", [f"O c1 {refused}", f"O c2 {refused}", "U 2"]), ("c", ["U 3"])]


async def test_a_known_conversation_costs_no_commit_of_its_own(core: Core) -> None:
    core.agent(ScriptedAdapter(BS, made("A1", "c"), [CallStarted("c"), *says("A2", "c")]))
    await core.send("1", context="x")
    before = len(core.ledger.units)
    await core.send("2", context="x")
    assert core.ledger.stored(NameCall) == [NameCall(core.ledger.stored(NameCall)[0].service_call, "c")]
    points = [type(point) for unit in core.ledger.units[before:] for point in unit]
    assert points
    assert NameCall not in points


async def test_41_a_conversation_that_is_lost_behind_a_question_is_told_with_the_question(core: Core) -> None:
    asks = CallCompleted("c1", Ending.INPUT_REQUIRED, (Part(text="Which?"),))
    lost = [AdapterError(ErrorClass.HANDLE_EXPIRED, "")]
    adapter = ScriptedAdapter(BS, [CallStarted("c1"), asks], lost, made("A2", "c2"))
    core.agent(adapter, on_lost_handle="rebuild")
    for words in "12":
        await core.send(words, context="x")
    assert adapter.sent == [(None, ["U 1"]), ("c1", ["U 2"]), (None, ["U 1", "A Which?", "U 2"])]
