"""Calls that are made again, and calls that must not be. Source: docs/state-model.md, scenarios 108 and 109."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import TaskState
from gateway.core.failures import safe_text
from gateway.ledger.calls import Fail, Prepare
from gateway.ports.adapter import AdapterError, CallStarted, ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from tests.support.core import CORRELATION_ID, Core, answer, events, frames, query, reason, running_core, soon, until
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says

BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
REPEATABLE = Ownership(BR.owner, BR.handle, repeatable=True)
SIDE_EFFECTS = Ownership(G.owner, G.handle, repeatable=False)
CALLS = "SELECT round, attempt, status, error_class, handle_in FROM service_call ORDER BY id"


def fails(kind: ErrorClass, retry_after: float | None = None) -> Script:
    return [AdapterError(kind, "no", retry_after=retry_after)]


def why(kind: str) -> str:
    return safe_text(kind, CORRELATION_ID)


@pytest.mark.parametrize(
    ("ownership", "kind"),
    [
        (G, ErrorClass.UNREACHABLE),
        (G, ErrorClass.TIMED_OUT),
        (G, ErrorClass.BACKEND_FAILED),
        (BR, ErrorClass.UNREACHABLE),
        (BR, ErrorClass.RATE_LIMITED),
        (REPEATABLE, ErrorClass.TIMED_OUT),
        (REPEATABLE, ErrorClass.INTERRUPTED),
        (REPEATABLE, ErrorClass.BACKEND_FAILED),
    ],
)
async def test_108_a_call_that_failed_before_output_is_one_service_call_with_its_attempts(
    core: Core, ownership: Ownership, kind: ErrorClass
) -> None:
    adapter = ScriptedAdapter(ownership, fails(kind), fails(kind), says("A1", "r1"))
    core.agent(adapter)
    read = events(await frames(await core.stream("1", context="c")))
    assert [event.status_update.status.state.name for event in read if event.status_update] == ["COMPLETED"]
    assert query(core.path, CALLS) == [
        (0, 0, "failed", kind, None),
        (0, 1, "failed", kind, None),
        (0, 2, "completed", None, None),
    ]
    assert core.waits == [0.5, 1.0]
    assert query(core.path, "SELECT count(*) FROM history_item WHERE kind = 'user'") == [(1,)]


@BOTH
async def test_108_after_the_third_try_the_turn_fails_for_the_last_reason(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, *[fails(ErrorClass.UNREACHABLE)] * 3)
    core.agent(adapter)
    assert reason(await core.send("1")) == why(ErrorClass.UNREACHABLE)
    assert [row[:3] for row in query(core.path, CALLS)] == [(0, n, "failed") for n in range(3)]


@pytest.mark.parametrize("kind", [ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED, ErrorClass.UNKNOWN])
@pytest.mark.parametrize("ownership", [BR, SIDE_EFFECTS], ids=["BR", "G with side effects"])
async def test_109_a_call_whose_outcome_is_unknown_is_not_made_again(
    core: Core, ownership: Ownership, kind: ErrorClass
) -> None:
    adapter = ScriptedAdapter(ownership, fails(kind), says("A2", "r2"))
    core.agent(adapter)
    assert reason(await core.send("1", core.call(key="k"), context="c")) == why(kind)
    assert reason(await core.send("1", core.call(key="k"), context="c")) == why(kind)
    assert len(adapter.requests) == 1
    assert (core.waits, query(core.path, "SELECT handle FROM thread")) == ([], [(None,)])


@pytest.mark.parametrize("begun", [[CallStarted("r9")], [TextDelta("par")]], ids=["started", "output"])
@pytest.mark.parametrize("kind", [ErrorClass.RATE_LIMITED, ErrorClass.LOCKED, ErrorClass.TIMED_OUT])
async def test_109_a_call_of_the_backends_conversation_that_began_is_never_made_again(
    core: Core, begun: list[Any], kind: ErrorClass
) -> None:
    adapter = ScriptedAdapter(BR, [*begun, AdapterError(kind, "")])
    core.agent(adapter)
    assert reason(await core.send("1")) == why(kind)
    assert len(adapter.requests) == 1


async def test_109_after_output_nothing_is_made_again(core: Core) -> None:
    adapter = ScriptedAdapter(G, [TextDelta("par"), AdapterError(ErrorClass.UNREACHABLE, "")])
    core.agent(adapter)
    task = await core.send("1")
    assert (reason(task), answer(task)) == (why(ErrorClass.UNREACHABLE), "par")
    assert len(adapter.requests) == 1


async def test_109_a_locked_conversation_is_tried_after_1_2_and_4_seconds(core: Core) -> None:
    adapter = ScriptedAdapter(BR, *[fails(ErrorClass.LOCKED)] * 3, says("A1", "r1"))
    core.agent(adapter)
    assert answer(await core.send("1")) == "A1"
    assert core.waits == [1.0, 2.0, 4.0]


async def test_109_the_time_that_the_backend_names_is_waited_for_within_bounds(core: Core) -> None:
    limited = [fails(ErrorClass.RATE_LIMITED, 7.0), fails(ErrorClass.RATE_LIMITED, 3600.0)]
    adapter = ScriptedAdapter(BR, *limited)
    core.agent(adapter)
    task = await core.send("1")
    assert reason(task) == safe_text(ErrorClass.RATE_LIMITED, CORRELATION_ID, 3600)
    assert core.waits == [7.5]
    assert task.status.message is not None
    assert task.status.message.metadata == {
        "correlationId": CORRELATION_ID,
        "errorClass": ErrorClass.RATE_LIMITED,
        "retryAfter": 3600,
    }


async def test_109_no_try_is_waited_for_beyond_the_turns_own_time(core: Core) -> None:
    adapter = ScriptedAdapter(G, fails(ErrorClass.RATE_LIMITED, 30.0))
    core.agent(adapter, turn_timeout=20)
    assert reason(await core.send("1")) == safe_text(ErrorClass.RATE_LIMITED, CORRELATION_ID, 30)
    assert core.waits == []


@BOTH
async def test_109b_a_repeated_request_is_the_very_one_that_failed(core: Core, ownership: Ownership) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(
        ownership, says("A1", "r1"), [pause, *fails(ErrorClass.UNREACHABLE)], says("A2", "r2"), says("A3", "r3")
    )
    core.agent(adapter)
    await core.send("1", context="c")
    await core.send("2", context="c", at_once=True)
    await soon(pause.reached.wait())
    await core.send("3", context="c", at_once=True)
    pause.go.set()
    await soon(core.runner.idle())
    failed, repeated, after = adapter.requests[1:]
    assert repeated == failed
    assert after.handle == ("r2" if ownership is BR else None)
    assert adapter.sent[3][1] == (["U 3"] if ownership is BR else ["U 1", "A A1", "U 2", "A A2", "U 3"])


@BOTH
async def test_109c_a_turn_that_is_canceled_while_it_waits_is_not_tried_again(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, fails(ErrorClass.UNREACHABLE), says("A2", "r2"))
    core.agent(adapter)
    core.waits.held = Pause()
    task = await core.send("1", context="c", at_once=True)
    await soon(core.waits.held.reached.wait())
    assert (await core.cancel(task.id)).status.state is TaskState.CANCELED
    assert len(adapter.requests) == 1
    assert query(core.path, CALLS) == [(0, 0, "failed", "unreachable", None)]
    assert query(core.path, "SELECT status FROM turn") == [("cancelled",)]
    core.waits.held = None
    assert answer(await core.send("2", context="c")) == "A2"
    assert adapter.sent[1] == (None, ["U 1", "U 2"])


async def test_109c_a_cancel_that_comes_while_the_failure_is_stored_ends_the_turn(core: Core) -> None:
    adapter = ScriptedAdapter(G, fails(ErrorClass.UNREACHABLE))
    core.agent(adapter)
    gate = core.ledger.hold(Fail)
    task = await core.send("1", context="c", at_once=True)
    await soon(gate.reached.wait())
    async with asyncio.TaskGroup() as group:
        canceling = group.create_task(core.cancel(task.id))
        await asyncio.sleep(0)
        core.ledger.let_go()
    assert canceling.result().status.state is TaskState.CANCELED
    assert len(adapter.requests) == 1


async def test_109d_a_turn_whose_process_died_while_it_waited_is_ended_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        one.agent(ScriptedAdapter(BR, fails(ErrorClass.UNREACHABLE)))
        one.waits.held = Pause()
        task = await one.send("1", context="c", at_once=True)
        await soon(one.waits.held.reached.wait())
    async with running_core(path, prefix="two", now=one.time.now + 6000) as two:
        adapter = ScriptedAdapter(BR, says("A2", "r2"))
        two.agent(adapter)
        assert "gateway stopped" in reason(await two.get(task.id))
        await two.send("2", context="c")
        assert adapter.sent == [(None, ["U 1", "U 2"])]


async def test_108_a_repeat_that_cannot_be_recorded_is_not_sent(tmp_path: Path) -> None:
    async with running_core(tmp_path / "ledger.db") as core:
        adapter = ScriptedAdapter(G, fails(ErrorClass.UNREACHABLE))
        core.agent(adapter)
        core.waits.held = Pause()
        await core.send("1", at_once=True)
        await soon(core.waits.held.reached.wait())
        lost = core.ledger.refuse(Prepare)
        core.waits.held.go.set()
        await soon(lost.wait())
        await until(lambda: core.runner.run_of("id-0001") is None)
        assert len(adapter.requests) == 1


# --- a rotating handle on which no tool of the backend runs -------------------------------------------------------------


@pytest.mark.parametrize("kind", [ErrorClass.INTERRUPTED, ErrorClass.TIMED_OUT, ErrorClass.BACKEND_FAILED])
async def test_108_a_response_that_began_and_said_nothing_is_asked_for_again_and_deleted(
    core: Core, kind: ErrorClass
) -> None:
    begun: Script = [CallStarted("r2"), AdapterError(kind, "cut")]
    adapter = ScriptedAdapter(REPEATABLE, says("A1", "r1"), begun, says("A2", "r3"), says("A3", "r4"))
    core.agent(adapter)
    answers = [answer(await core.send(text, context="c")) for text in ("1", "2", "3")]
    assert answers == ["A1", "A2", "A3"]
    assert adapter.sent == [(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2"]), ("r3", ["U 3"])]
    assert query(core.path, "SELECT handle FROM delete_job") == [("r2",)]


async def test_109_an_answer_of_which_a_part_was_shown_is_not_asked_for_again(core: Core) -> None:
    adapter = ScriptedAdapter(REPEATABLE, [CallStarted("r1"), TextDelta("par"), *fails(ErrorClass.INTERRUPTED)])
    core.agent(adapter)
    task = await core.send("1")
    assert (reason(task), answer(task), len(adapter.requests)) == (why(ErrorClass.INTERRUPTED), "par", 1)


async def test_109c_a_call_of_unknown_outcome_is_not_made_again_after_a_cancel_in_its_wait(core: Core) -> None:
    adapter = ScriptedAdapter(REPEATABLE, fails(ErrorClass.TIMED_OUT), says("A2", "r2"))
    core.agent(adapter)
    core.waits.held = Pause()
    task = await core.send("1", context="c", at_once=True)
    await soon(core.waits.held.reached.wait())
    assert (await core.cancel(task.id)).status.state is TaskState.CANCELED
    core.waits.held = None
    assert answer(await core.send("2", context="c")) == "A2"
    assert adapter.sent == [(None, ["U 1"]), (None, ["U 1", "U 2"])]


# --- a kept connection that the backend closed as the request went out ---------------------------------------------------

STALE: Script = [AdapterError(ErrorClass.INTERRUPTED, "closed", stale_connection=True)]


@pytest.mark.parametrize("ownership", [G, BR, SIDE_EFFECTS, REPEATABLE], ids=["G", "BR", "G once", "BR repeatable"])
async def test_108_a_request_that_crossed_with_the_end_of_its_connection_is_made_again(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, STALE, says("A1", "r1"))
    core.agent(adapter)
    assert answer(await core.send("1", context="c")) == "A1"
    assert adapter.requests[0] == adapter.requests[1]


@pytest.mark.parametrize("ownership", [BR, SIDE_EFFECTS], ids=["BR", "G once"])
async def test_109_a_request_is_made_again_once_for_the_end_of_its_connection(core: Core, ownership: Ownership) -> None:
    adapter = ScriptedAdapter(ownership, STALE, STALE)
    core.agent(adapter)
    assert reason(await core.send("1")) == why(ErrorClass.INTERRUPTED)
    assert len(adapter.requests) == 2


async def test_109_a_static_conversation_is_not_sent_to_twice_for_the_end_of_a_connection(core: Core) -> None:
    adapter = ScriptedAdapter(BS, says("A1", "c1"), STALE, says("A3", "c1"))
    core.agent(adapter)
    await core.send("1", context="c")
    assert reason(await core.send("2", context="c")) == why(ErrorClass.INTERRUPTED)
    assert len(adapter.requests) == 2
