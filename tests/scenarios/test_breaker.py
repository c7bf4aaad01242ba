"""A backend that is down: after five failures it gets no calls, then one as a test, and the conversations that failed
meanwhile continue with nothing lost. Source: docs/state-model.md, section 14, B1."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Task, TaskState
from gateway.core.agents import Agent
from gateway.core.failures import TURN_TIMEOUT, safe_text
from gateway.engine.runtime import LEFT_ALONE
from gateway.foundation.retry import COOLDOWN
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, ErrorClass, TextDelta
from gateway.ports.capabilities import Backend, Fate, Fetched
from gateway.ports.conversation import Ownership
from tests.scenarios.test_approvals import GATED, PAY, one, reply, yes
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import (
    CORRELATION_ID,
    START,
    Core,
    answer,
    error_class,
    query,
    reason,
    running_core,
    soon,
    until,
)
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools
from tests.support.unknown_calls import FetchingAdapter, TailAdapter

ALL = pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])
BACKEND = Backend("http://backend/v1", "key")
AWAY: Script = [AdapterError(ErrorClass.UNREACHABLE, "refused")]
CUT = AdapterError(ErrorClass.INTERRUPTED, "cut")
CALLS = "SELECT turn.status, call.status, call.error_class FROM service_call AS call JOIN turn ON turn.id = call.turn"


def agent(core: Core, adapter: ScriptedAdapter, name: str = "echo", **more: Any) -> Agent:
    return core.agent(adapter, name, backend=BACKEND, **more)


async def falls(core: Core) -> None:
    """The backend fails five times, under an agent of its own: three tries of one turn, two of another."""
    meant = core.default
    down = agent(core, ScriptedAdapter(G, *[AWAY] * 5), "down")
    for text in ("1", "2"):
        await core.send(text, core.call("eve", agent=down))
    core.default = meant
    del core.waits[:]


def left_alone(seconds: int) -> str:
    """The reason of the turn after whose failure the backend is left alone."""
    return safe_text(ErrorClass.UNREACHABLE, CORRELATION_ID, seconds)


def not_asked(seconds: int) -> str:
    """The reason of a turn whose backend is left alone."""
    return safe_text(ErrorClass.UNREACHABLE, CORRELATION_ID, seconds, hint=LEFT_ALONE)


# --- while it is left alone


@ALL
async def test_a_turn_fails_at_once_without_a_byte_to_the_backend_and_the_next_one_brings_it(
    core: Core, ownership: Ownership
) -> None:
    adapter = adapter_of(ownership, says("A1", "r1"), says("A3", "r3"))
    agent(core, adapter)
    await core.send("1", context="c")
    handle = query(core.path, "SELECT handle FROM thread")
    await falls(core)
    core.time.monotonic += 7
    task = await core.send("2", context="c")
    assert reason(task) == not_asked(23)
    assert task.status.message is not None
    assert task.status.message.metadata == {
        "correlationId": CORRELATION_ID,
        "errorClass": ErrorClass.UNREACHABLE,
        "retryAfter": 23,
    }
    assert (len(adapter.requests), core.waits) == (1, [])
    assert query(core.path, "SELECT handle, state FROM thread WHERE agent = 'echo'") == [(handle[0][0], "open")]
    core.time.monotonic += 23
    assert answer(await core.send("3", context="c")) == "A3"
    again = ["U 1", "A A1", "U 2", "U 3"] if ownership is G else ["U 2", "U 3"]
    assert adapter.sent[1] == (handle[0][0], again)


async def test_a_failed_turn_is_told_that_it_was_the_last_straw_and_waits_for_no_other_try(core: Core) -> None:
    adapter = ScriptedAdapter(G, *[AWAY] * 5)
    agent(core, adapter)
    first, second = await core.send("1"), await core.send("2")
    assert reason(first) == safe_text(ErrorClass.UNREACHABLE, CORRELATION_ID)
    assert reason(second) == left_alone(30)
    assert (len(adapter.requests), core.waits) == (5, [0.5, 1.0, 0.5])


async def test_a_failure_keeps_its_own_reason_when_it_is_the_last_straw(core: Core) -> None:
    late = [AdapterError(ErrorClass.TIMED_OUT, "no byte")]
    agent(core, ScriptedAdapter(BR, *[late] * 5))
    tasks = [await core.send(text) for text in "12345"]
    assert [error_class(task) for task in tasks] == [ErrorClass.TIMED_OUT] * 5
    assert reason(tasks[-1]) == safe_text(ErrorClass.TIMED_OUT, CORRELATION_ID, 30)


async def test_a_try_that_was_waited_for_meanwhile_is_not_made(core: Core) -> None:
    adapter = ScriptedAdapter(G, AWAY)
    agent(core, adapter)
    pause = core.waits.held = Pause()
    task = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    core.waits.held = None
    await falls(core)
    pause.go.set()
    await until(lambda: core.runner.run_of(task.id) is None)
    assert reason(await core.get(task.id)) == not_asked(30)
    assert len(adapter.requests) == 1


async def test_turns_that_wait_in_line_fail_one_after_the_other_and_the_line_moves_on(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(BR, [pause, *AWAY], says("A5", "r5"))
    agent(core, adapter)
    await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    for text in ("2", "3", "4"):
        await core.send(text, context="c", at_once=True)
    await falls(core)
    pause.go.set()
    await soon(core.runner.idle())
    assert query(core.path, "SELECT status, count(*) FROM turn WHERE status <> 'failed' GROUP BY 1") == []
    assert len(adapter.requests) == 1
    core.time.monotonic += COOLDOWN
    assert answer(await core.send("5", context="c")) == "A5"
    assert adapter.sent[1] == (None, ["U 1", "U 2", "U 3", "U 4", "U 5"])


async def test_other_backends_and_agents_without_one_are_asked_as_ever(core: Core) -> None:
    elsewhere = core.agent(ScriptedAdapter(G, says("A")), "elsewhere", backend=Backend("http://elsewhere/v1", "key"))
    nameless = core.agent(ScriptedAdapter(G, *[AWAY] * 6, says("A")), "nameless")
    await falls(core)
    assert answer(await core.send("1", core.call(agent=elsewhere))) == "A"
    for _ in range(2):
        await core.send("1", core.call(agent=nameless))
    assert answer(await core.send("1", core.call(agent=nameless))) == "A"


async def test_an_agent_that_is_configured_anew_finds_its_backend_as_it_was(core: Core) -> None:
    await falls(core)
    agent(core, ScriptedAdapter(G))
    assert reason(await core.send("1")) == not_asked(30)


async def test_an_answer_under_way_when_it_fell_shows_that_it_is_there(core: Core) -> None:
    pause = Pause()
    agent(core, ScriptedAdapter(G, [pause, *says("A1")], says("A2")))
    task = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    await falls(core)
    pause.go.set()
    await until(lambda: core.runner.run_of(task.id) is None)
    assert answer(await core.get(task.id)) == "A1"
    assert answer(await core.send("2")) == "A2"


# --- in the middle of a turn


@ALL
async def test_a_turn_with_a_tool_behind_it_ends_as_a_failed_call_does_and_its_outcome_goes_with_the_next_message(
    core: Core, ownership: Ownership
) -> None:
    pause = Pause()
    tools = ScriptedTools({"add": pause})
    adapter = adapter_of(ownership, asks("r1", call("c1")), says("A2", "r2"))
    agent(core, adapter, toolset=tools)
    task = await core.send("1", context="c", at_once=True)
    await soon(pause.reached.wait())
    await falls(core)
    pause.go.set()
    await until(lambda: core.runner.run_of(task.id) is None)
    assert reason(await core.get(task.id)) == not_asked(30)
    core.time.monotonic += COOLDOWN
    assert answer(await core.send("2", context="c")) == "A2"
    assert tools.ran == ["add"]
    handle, items = adapter.sent[1]
    if ownership is G:
        assert items == ["U 1", "C c1 add", "O c1 done", "U 2"]
    else:
        assert (handle, items) == ("r1" if ownership is BR else "c", ["O c1 done", "U 2"])


@ALL
async def test_what_was_approved_is_done_once_and_told_with_the_next_message(core: Core, ownership: Ownership) -> None:
    tools = ScriptedTools({"pay": "paid"})
    adapter = adapter_of(ownership, asks("r1", PAY), says("A2", "r2"))
    agent(core, adapter, toolset=tools, approvals=GATED)
    waiting = await core.send("1", context="c")
    await falls(core)
    task = await reply(core, waiting.id, yes(one(waiting)))
    assert reason(task) == not_asked(30)
    core.time.monotonic += COOLDOWN
    assert answer(await core.send("2", context="c")) == "A2"
    assert tools.ran == ["pay"]
    assert adapter.sent[1][1][-2:] == ["O c2 paid", "U 2"]


# --- the trial


@ALL
async def test_one_turn_tries_for_all_others_and_its_answer_lets_them_through(core: Core, ownership: Ownership) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(ownership, [pause, *says("A1", "r1")], says("A3", "r3"))
    agent(core, adapter)
    await falls(core)
    core.time.monotonic += COOLDOWN
    trial = await core.send("1", context="a", at_once=True)
    await soon(pause.reached.wait())
    assert reason(await core.send("2", context="b")) == not_asked(1)
    assert len(adapter.requests) == 1
    pause.go.set()
    await until(lambda: core.runner.run_of(trial.id) is None)
    assert answer(await core.get(trial.id)) == "A1"
    assert answer(await core.send("3", context="b")) == "A3"
    assert adapter.sent[1] == (None, ["U 2", "U 3"])


async def test_the_beginning_of_its_answer_is_enough(core: Core) -> None:
    pause = Pause()
    agent(core, ScriptedAdapter(BR, [CallStarted("r1"), pause, *says("A1", "r1")], says("A2", "r2")))
    await falls(core)
    core.time.monotonic += COOLDOWN
    await core.send("1", context="a", at_once=True)
    await soon(pause.reached.wait())
    assert answer(await core.send("2", context="b")) == "A2"


async def test_a_trial_that_fails_is_not_tried_again_and_the_others_wait_as_long_once_more(core: Core) -> None:
    adapter = ScriptedAdapter(G, AWAY, says("A3"))
    agent(core, adapter)
    await falls(core)
    core.time.monotonic += COOLDOWN
    assert reason(await core.send("1")) == left_alone(30)
    assert reason(await core.send("2")) == not_asked(30)
    assert (len(adapter.requests), core.waits) == (1, [])
    core.time.monotonic += COOLDOWN
    assert answer(await core.send("3")) == "A3"


async def test_a_trial_that_is_canceled_leaves_it_to_the_next_turn(core: Core) -> None:
    pause = Pause()
    adapter = ScriptedAdapter(G, [pause], says("A2"))
    agent(core, adapter)
    await falls(core)
    core.time.monotonic += COOLDOWN
    trial = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    assert (await core.cancel(trial.id)).status.state is TaskState.CANCELED
    assert answer(await core.send("2")) == "A2"


async def test_a_trial_that_runs_out_of_time_leaves_it_to_the_next_turn(core: Core) -> None:
    adapter = ScriptedAdapter(G, [Pause()], says("A2"))
    agent(core, adapter, turn_timeout=0.5)
    await falls(core)
    core.time.monotonic += COOLDOWN
    assert error_class(await core.send("1")) == TURN_TIMEOUT
    agent(core, adapter)
    assert answer(await core.send("2")) == "A2"


async def test_a_trial_that_meets_a_fault_of_the_adapter_leaves_it_to_the_next_turn(core: Core) -> None:
    adapter = ScriptedAdapter(G, [ZeroDivisionError()], says("A2"))
    agent(core, adapter)
    await falls(core)
    core.time.monotonic += COOLDOWN
    assert error_class(await core.send("1")) == "internal"
    assert answer(await core.send("2")) == "A2"


# --- look-ups, and calls that go on when nobody listens


async def test_a_call_whose_end_nobody_heard_is_looked_up_when_the_backend_is_asked_again(core: Core) -> None:
    found = Fetched(Fate.COMPLETED, (CallStarted("r1"), TextDelta("A1"), CallCompleted("r1")))
    adapter = FetchingAdapter([CallStarted("r1"), TextDelta("par"), CUT], says("A3", "r3"), found=[found])
    agent(core, adapter)
    await core.send("1", context="c")
    await falls(core)
    assert reason(await core.send("2", context="c")) == not_asked(30)
    assert adapter.fetched == []
    core.time.monotonic += COOLDOWN
    assert answer(await core.send("3", context="c")) == "A3"
    assert (adapter.fetched, adapter.sent[1]) == (["r1"], ("r1", ["U 2", "U 3"]))


async def test_a_look_up_that_fails_is_the_trial_of_its_turn(core: Core) -> None:
    away, found = AdapterError(ErrorClass.UNREACHABLE, "refused"), Fetched(Fate.GONE)
    adapter = FetchingAdapter([CallStarted("r1"), TextDelta("par"), CUT], says("A3", "r3"), found=[away, found])
    agent(core, adapter)
    await core.send("1", context="c")
    await falls(core)
    core.time.monotonic += COOLDOWN
    assert reason(await core.send("2", context="c")) == left_alone(30)
    assert (adapter.fetched, core.waits) == (["r1"], [])
    core.time.monotonic += COOLDOWN
    assert answer(await core.send("3", context="c")) == "A3"
    assert adapter.sent[1] == (None, ["U 1", "U 2", "U 3"])


async def test_the_failures_of_look_ups_count(core: Core) -> None:
    away = AdapterError(ErrorClass.UNREACHABLE, "refused")
    adapter = TailAdapter([CallStarted("c"), TextDelta("par"), CUT], found=[away] * 5)
    agent(core, adapter)
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert reason(await core.send("3", context="c")) == left_alone(30)
    assert len(adapter.asked) == 5


BEGUN: Script = [CallStarted("r1"), TextDelta("one "), TextDelta("two ")]
WHOLE: Script = [*BEGUN, TextDelta("three"), CallCompleted("r1")]


async def test_an_answer_that_goes_on_is_listened_to_again_when_the_backend_is_asked_again(core: Core) -> None:
    pause = Pause()
    adapter = ResumingAdapter([*BEGUN, pause, CUT], again=[AWAY, WHOLE])
    agent(core, adapter)
    task = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    await falls(core)
    core.waits.time = core.time
    pause.go.set()
    await until(lambda: core.runner.run_of(task.id) is None)
    assert answer(await core.get(task.id)) == "one two three"
    # Behind the cut it may not ask; its trial fails; it may not ask again; then it is answered.
    assert (core.waits, adapter.resumed) == ([0.5, 30.0, 2.0, 28.0], ["r1", "r1"])


def survivor(path: Path, adapter: ScriptedAdapter) -> AbstractAsyncContextManager[Core]:
    return running_core(path, prefix="two", now=START + 6000, adapter=adapter)


async def test_a_process_that_takes_over_asks_for_itself_whether_the_backend_is_there(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one_core:
        agent(one_core, ResumingAdapter([*BEGUN, pause]))
        task = await one_core.send("1", at_once=True)
        await soon(pause.reached.wait())
        await falls(one_core)
    adapter = ResumingAdapter(again=[AWAY, WHOLE])
    async with survivor(path, adapter) as two:
        await soon(two.runner.idle())
        assert answer(await two.get(task.id)) == "one two three"
    assert adapter.resumed == ["r1", "r1"]


async def test_who_cancels_an_answer_that_goes_on_is_heard_also_by_a_backend_that_is_not_asked(core: Core) -> None:
    pause = Pause()
    adapter = ResumingAdapter([*BEGUN, pause])
    agent(core, adapter)
    task = await core.send("1", at_once=True)
    await soon(pause.reached.wait())
    await falls(core)
    assert (await core.cancel(task.id)).status.state is TaskState.CANCELED
    assert adapter.cancelled == ["r1"]


async def test_what_is_refused_leaves_the_same_rows_as_a_backend_that_refuses(core: Core) -> None:
    adapter = ScriptedAdapter(G)
    agent(core, adapter)
    await falls(core)
    before = set(query(core.path, CALLS))
    task: Task = await core.send("1")
    assert error_class(task) == ErrorClass.UNREACHABLE
    assert set(query(core.path, CALLS)) == before == {("failed", "failed", "unreachable")}
