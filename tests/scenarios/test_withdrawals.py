"""A task that ends while its backend waits for the caller: what waits there is withdrawn, by the gateway alone or before the
next message, whichever comes first. Source: docs/state-model.md, section 8 and scenario 119b."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Part, TaskState
from gateway.core.backend_jobs import CLAIM, RETRIES
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.tool_call import NOT_RUN, OUTCOME_UNKNOWN
from gateway.ledger.retention import AgedContext, EndWithdrawal
from gateway.ledger.threads import Caller
from gateway.ports.adapter import (
    AdapterError,
    ApprovalAsked,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    ToolCallReady,
)
from gateway.ports.capabilities import Fate, Fetched, Ongoing
from tests.invariants import violations
from tests.scenarios.test_approvals import expiry, reply
from tests.support.core import START, Core, query, running_core, soon, until
from tests.support.deletions import DAY, contexts
from tests.support.scripted import BR, BS, Pause, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools
from tests.support.withdrawing import WithdrawingAdapter, withdrawals

NAMED = CallStarted("c", "run1")
WORDS = (Part(text="Which?"),)
ASKS: Script = [NAMED, CallCompleted("c", ending=Ending.INPUT_REQUIRED, message=WORDS)]
WANTS_CONSENT: Script = [NAMED, CallCompleted("c", ending=Ending.AUTH_REQUIRED, message=WORDS)]
WANTS_APPROVAL: Script = [NAMED, ApprovalAsked("q1", "pay", "{}", "bank"), CallCompleted("c")]
CALLS: Script = [NAMED, ToolCallReady("c1", "look", "{}"), ToolCallReady("c2", "pay", "{}"), CallCompleted("c")]
GATED = (ApprovalRule("box.pay"),)

AWAY = AdapterError(ErrorClass.UNREACHABLE, "HTTP 503")
GONE = AdapterError(ErrorClass.HANDLE_NOT_FOUND, "HTTP 404")


class LookedUp(WithdrawingAdapter):
    async def fetch(self, call: Ongoing) -> Fetched:
        return Fetched(Fate.RUNNING)


QUESTIONS = pytest.mark.parametrize(
    "script", [ASKS, WANTS_CONSENT, WANTS_APPROVAL], ids=["words", "consent", "approval"]
)


def jobs(path: Path) -> list[tuple[Any, ...]]:
    return query(path, "SELECT agent, handle, run, attempts FROM withdrawal ORDER BY id")


async def asked(core: Core, **more: Any) -> str:
    """The task that waits for its caller."""
    task = await core.send("1", context="x", **more)
    assert task.status.state in (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)
    return task.id


# --- what is queued


@QUESTIONS
async def test_119b_a_cancel_is_told_to_the_caller_before_it_is_told_to_the_backend(core: Core, script: Script) -> None:
    slow = Pause()
    adapter = WithdrawingAdapter(script, answers=[slow])
    core.agent(adapter)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(withdrawals(core).run())
        await until(lambda: "next_withdrawals" in core.ledger.reads)
        task = await core.cancel(await asked(core))
        assert task.status.state is TaskState.CANCELED
        await soon(slow.reached.wait())
        assert len(jobs(core.path)) == 1
        slow.go.set()
        await until(lambda: core.ledger.stored(EndWithdrawal))
        working.cancel()
    assert adapter.seen == ["U 1", "withdraw c/run1"]
    assert jobs(core.path) == []
    assert violations(core.path) == []


@pytest.mark.parametrize("begun", [CallStarted("c"), CallStarted()])
async def test_a_call_without_a_name_has_left_nothing_that_can_be_withdrawn(core: Core, begun: CallStarted) -> None:
    core.agent(ScriptedAdapter(BS, [begun, *ASKS[1:]]))
    await core.cancel(await asked(core))
    assert jobs(core.path) == []


async def test_on_a_chain_of_responses_nothing_waits(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, ASKS))
    await core.cancel(await asked(core))
    assert jobs(core.path) == []


async def test_an_answer_leaves_nothing_to_withdraw(core: Core) -> None:
    adapter = WithdrawingAdapter(ASKS, [CallStarted(run="run2"), *says("done", "c")])
    core.agent(adapter)
    task = await core.send("Oslo", task=await asked(core))
    assert task.status.state is TaskState.COMPLETED
    assert (adapter.seen, jobs(core.path)) == (["U 1", "U Oslo"], [])


async def test_words_instead_of_a_decision_go_on_with_what_waits(core: Core) -> None:
    adapter = WithdrawingAdapter(WANTS_APPROVAL, says("done", "c"))
    core.agent(adapter)
    await reply(core, await asked(core), "never mind")
    assert jobs(core.path) == []
    assert adapter.seen == ["U 1", f"O q1 {NOT_RUN}, U never mind"]


async def test_an_answer_that_the_backend_did_not_take_leaves_what_waits_to_be_withdrawn(core: Core) -> None:
    adapter = WithdrawingAdapter(ASKS, [AdapterError(ErrorClass.REJECTED, "HTTP 400")])
    core.agent(adapter)
    task = await core.send("Oslo", task=await asked(core))
    assert task.status.state is TaskState.FAILED
    assert jobs(core.path) == [("echo", "c", "run1", 0)]


async def test_an_answer_of_unknown_outcome_is_looked_up_and_nothing_is_withdrawn(core: Core) -> None:
    adapter = LookedUp(ASKS, [CallStarted(run="run2"), AdapterError(ErrorClass.UNKNOWN, "cut")])
    core.agent(adapter)
    task = await core.send("Oslo", task=await asked(core))
    assert task.status.state is TaskState.FAILED
    assert jobs(core.path) == []


# --- tools of the gateway, for which the backend waits


async def test_the_outcomes_that_there_are_go_with_the_withdrawal(core: Core) -> None:
    adapter = WithdrawingAdapter(CALLS)
    core.agent(adapter, toolset=ScriptedTools({"look": "seen", "pay": "paid"}), approvals=GATED)
    await core.cancel(await asked(core))
    assert await soon(withdrawals(core).run_due()) is None
    assert adapter.seen[1:] == [f"withdraw c/run1 O c1 seen O c2 {NOT_RUN}"]


async def test_a_turn_that_is_cancelled_while_a_tool_runs_leaves_the_backend_waiting(core: Core) -> None:
    pause = Pause()
    adapter = WithdrawingAdapter([NAMED, ToolCallReady("c1", "look", "{}"), CallCompleted("c")])
    core.agent(adapter, toolset=ScriptedTools({"look": pause}))
    task = await core.send("1", context="x", at_once=True)
    await soon(pause.reached.wait())
    assert (await core.cancel(task.id)).status.state is TaskState.CANCELED
    assert await soon(withdrawals(core).run_due()) is None
    assert adapter.seen[1:] == [f"withdraw c/run1 O c1 {OUTCOME_UNKNOWN}"]


async def test_a_turn_that_fails_behind_its_tools_leaves_the_backend_waiting(core: Core) -> None:
    adapter = WithdrawingAdapter(CALLS)
    tools = ScriptedTools({"look": "seen", "pay": "paid"})
    core.agent(adapter, toolset=tools, tool_rounds=0, round_limit_action="fail")
    task = await core.send("1", context="x")
    assert task.status.state is TaskState.FAILED
    assert jobs(core.path) == [("echo", "c", "run1", 0)]


async def test_a_turn_whose_process_died_while_a_tool_ran_leaves_the_backend_waiting(tmp_path: Path) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(WithdrawingAdapter(CALLS), toolset=ScriptedTools({"look": pause, "pay": "paid"}))
        await one.send("1", context="x", at_once=True)
        await soon(pause.reached.wait())
        await one.die()
    async with running_core(path, prefix="two", now=START + 6000, adapter=WithdrawingAdapter()) as two:
        await soon(two.runner.idle())
        assert jobs(path) == [("echo", "c", "run1", 0)]


# --- by whom, and when


async def test_a_process_that_was_killed_leaves_the_withdrawal_to_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as one:
        one.agent(WithdrawingAdapter(ASKS))
        await one.cancel(await asked(one))
        await one.die()
    adapter = WithdrawingAdapter()
    async with running_core(path, prefix="two", adapter=adapter) as two:
        assert await soon(withdrawals(two).run_due()) is None
    assert (adapter.seen, jobs(path)) == (["withdraw c/run1"], [])


async def test_the_next_message_withdraws_what_waits_before_it_is_sent(core: Core) -> None:
    adapter = WithdrawingAdapter(ASKS, says("hello", "c"))
    core.agent(adapter)
    await core.cancel(await asked(core))
    assert (await core.send("2", context="x")).status.state is TaskState.COMPLETED
    assert adapter.seen == ["U 1", "withdraw c/run1", "U 2"]
    assert jobs(core.path) == []
    assert violations(core.path) == []


async def test_the_next_message_waits_for_a_withdrawal_that_is_under_way(core: Core) -> None:
    slow = Pause()
    adapter = WithdrawingAdapter(ASKS, says("hello", "c"), answers=[slow])
    core.agent(adapter)
    await core.cancel(await asked(core))
    async with asyncio.TaskGroup() as group:
        group.create_task(withdrawals(core).run_due())
        await soon(slow.reached.wait())
        sent = group.create_task(core.send("2", context="x"))
        await until(lambda: core.waits or sent.done())
        assert adapter.seen == ["U 1", "withdraw c/run1"]
        slow.go.set()
    assert (adapter.seen, jobs(core.path)) == (["U 1", "withdraw c/run1", "U 2"], [])


async def test_the_next_message_waits_for_a_withdrawal_of_another_process(tmp_path: Path) -> None:
    path, slow = tmp_path / "ledger.db", Pause()
    first = WithdrawingAdapter(ASKS, answers=[slow])
    async with running_core(path, prefix="one") as one:
        one.agent(first)
        await one.cancel(await asked(one))
        second = WithdrawingAdapter(says("hello", "c"))
        async with running_core(path, prefix="two", adapter=second) as two, asyncio.TaskGroup() as group:
            group.create_task(withdrawals(one).run_due())
            await soon(slow.reached.wait())
            sent = group.create_task(two.send("2", context="x"))
            await until(lambda: two.waits or sent.done())
            assert second.seen == []
            slow.go.set()
    assert (first.seen[1:], second.seen, jobs(path)) == (["withdraw c/run1"], ["U 2"], [])


async def test_a_withdrawal_that_a_message_makes_is_made_by_nobody_else(core: Core) -> None:
    slow = Pause()
    adapter = WithdrawingAdapter(ASKS, says("hello", "c"), answers=[slow])
    core.agent(adapter)
    await core.cancel(await asked(core))
    async with asyncio.TaskGroup() as group:
        group.create_task(core.send("2", context="x"))
        await soon(slow.reached.wait())
        assert await soon(withdrawals(core).run_due()) == CLAIM
        slow.go.set()
    assert adapter.seen == ["U 1", "withdraw c/run1", "U 2"]


async def test_a_message_waits_no_longer_than_a_claim_for_a_process_that_died_in_its_withdrawal(tmp_path: Path) -> None:
    path, slow = tmp_path / "ledger.db", Pause()
    async with running_core(path, prefix="one") as one:
        one.agent(WithdrawingAdapter(ASKS, answers=[slow]))
        await one.cancel(await asked(one))
        async with asyncio.TaskGroup() as group:
            attempt = group.create_task(withdrawals(one).run_due())
            await soon(slow.reached.wait())
            attempt.cancel()
        await one.die()
    adapter = WithdrawingAdapter(says("hello", "c"))
    async with running_core(path, prefix="two", adapter=adapter) as two, asyncio.TaskGroup() as group:
        group.create_task(two.send("2", context="x"))
        await until(lambda: two.waits)
        assert adapter.seen == []
        two.time.now += int(CLAIM * 1000)
    assert (adapter.seen, jobs(path)) == (["withdraw c/run1", "U 2"], [])


async def test_a_message_that_takes_the_place_of_a_question_withdraws_it_first(core: Core) -> None:
    adapter = WithdrawingAdapter(WANTS_APPROVAL, says("hello", "c"))
    core.agent(adapter, new_task_while_waiting="supersede")
    await asked(core)
    assert (await core.send("2", context="x")).status.state is TaskState.COMPLETED
    assert adapter.seen == ["U 1", "withdraw c/run1", f"O q1 {NOT_RUN}, U 2"]


@pytest.mark.parametrize("fault", [AWAY, TimeoutError(), RuntimeError("broken")])
async def test_a_message_is_sent_though_the_withdrawal_before_it_fails(core: Core, fault: BaseException) -> None:
    adapter = WithdrawingAdapter(ASKS, says("hello", "c"), answers=[fault])
    core.agent(adapter)
    await core.cancel(await asked(core))
    assert (await core.send("2", context="x")).status.state is TaskState.COMPLETED
    assert adapter.seen == ["U 1", "withdraw c/run1", "U 2"]
    assert jobs(core.path) == [("echo", "c", "run1", 1)]
    pause = await soon(withdrawals(core).run_due())
    assert pause is not None
    assert pause >= RETRIES[0]
    core.time.now += int(pause * 1000)
    assert await soon(withdrawals(core).run_due()) is None
    assert (adapter.seen[3:], jobs(core.path)) == (["withdraw c/run1"], [])


@pytest.mark.parametrize("fault", [AWAY, TimeoutError(), RuntimeError("broken")])
async def test_a_withdrawal_that_fails_is_made_again_later(core: Core, fault: BaseException) -> None:
    adapter = WithdrawingAdapter(ASKS, answers=[fault])
    core.agent(adapter)
    await core.cancel(await asked(core))
    assert await soon(withdrawals(core).run_due()) == RETRIES[0]
    assert jobs(core.path) == [("echo", "c", "run1", 1)]
    core.time.now += RETRIES[0] * 1000
    assert await soon(withdrawals(core).run_due()) is None
    assert (adapter.seen[1:], jobs(core.path)) == (["withdraw c/run1"] * 2, [])


async def test_after_the_last_attempt_a_withdrawal_is_given_up(core: Core) -> None:
    adapter = WithdrawingAdapter(ASKS, answers=[AWAY] * 20)
    core.agent(adapter)
    await core.cancel(await asked(core))
    outbox, pauses = withdrawals(core), []
    while (pause := await soon(outbox.run_due())) is not None:
        pauses.append(pause)
        core.time.now += int(pause * 1000)
    assert (pauses, jobs(core.path)) == (list(RETRIES), [])


@pytest.mark.parametrize("adapter", [WithdrawingAdapter(ASKS, answers=[GONE]), ScriptedAdapter(BS, ASKS)])
async def test_what_cannot_be_withdrawn_is_not_tried_again(core: Core, adapter: ScriptedAdapter) -> None:
    core.agent(adapter)
    await core.cancel(await asked(core))
    assert await soon(withdrawals(core).run_due()) is None
    assert jobs(core.path) == []


async def test_what_waits_at_an_agent_that_is_not_there_waits_for_it(core: Core) -> None:
    core.agent(WithdrawingAdapter(ASKS))
    await core.cancel(await asked(core))
    core.agents.clear()
    assert await soon(withdrawals(core).run_due()) == RETRIES[0]
    assert jobs(core.path) == [("echo", "c", "run1", 1)]


# --- contexts that end


@QUESTIONS
async def test_a_context_that_is_deleted_withdraws_what_waits(core: Core, script: Script) -> None:
    adapter = WithdrawingAdapter(script)
    core.agent(adapter)
    await asked(core)
    await contexts(core).delete(Caller("ada"), "x")
    assert await soon(withdrawals(core).run_due()) is None
    assert adapter.seen[1:] == ["withdraw c/run1"]
    assert jobs(core.path) == []


async def test_a_context_that_expires_withdraws_what_waits(core: Core) -> None:
    adapter = WithdrawingAdapter(ASKS)
    core.agent(adapter)
    await asked(core)
    core.time.now += 100 * DAY
    [(row, created)] = query(core.path, "SELECT id, created_at FROM context")
    aged = AgedContext(row, Caller("ada"), "x", created, idle=True, purge_pending=False)
    assert await contexts(core).expire(aged, core.time.now)
    assert await soon(withdrawals(core).run_due()) is None
    assert adapter.seen[1:] == ["withdraw c/run1"]


async def test_a_question_that_expires_is_answered_with_no_and_not_withdrawn(core: Core) -> None:
    adapter = WithdrawingAdapter(WANTS_APPROVAL, says("a pity", "c"))
    core.agent(adapter, approval_timeout=60.0)
    await asked(core)
    core.time.now += 61_000
    await expiry(core).sweep()
    await soon(core.runner.idle())
    assert jobs(core.path) == []
