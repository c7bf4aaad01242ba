"""The part of the conformance suite on turns that wait for their caller, on tool calls and on turns that were left. Law: it
knows no store."""

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.errors import Conflict
from gateway.ledger.leases import Heartbeat, Release, RequestCancel, UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.tasks import OpenTurn, TaskOwner, TaskRecord
from gateway.ledger.threads import Caller
from gateway.ledger.tool_calls import EarlierToolCall, StandingApproval, ToolEnds, ToolStarts, ToolWaits
from gateway.ledger.turns import Decide, GivenAnswer, Resume, Suspend, Verdict
from gateway.ports.conversation import CallItem, OutputItem, UserItem
from gateway.testing.checks import require, same
from gateway.testing.ledger_points import (
    ACCEPT,
    ADA,
    APPEND,
    COMPLETE,
    FINISH,
    FOLLOW_UP,
    PREPARE,
    everything,
    numbered,
    says,
)

_GATED = NewToolCall(
    "tool-1", 0, "fc-1", "pay", "{}", "gateway", ToolCallStatus.PENDING_APPROVAL, None,
    asked=True, digest="d", expires_at=5000,
)  # fmt: skip
_CALLED = replace(COMPLETE, items=(NewItem(CallItem("fc-1", "pay", "{}"), None, "tool-1"),), tool_calls=(_GATED,))
_ASK = Suspend("task-1", "turn-1", "thread-1", TaskState.INPUT_REQUIRED, says("may it?"), None, 1300)
_ASKED: tuple[CommitPoint, ...] = (ACCEPT, PREPARE, _CALLED, _ASK)
_ANSWER = GivenAnswer(says("yes"), 1, "digest-2", None, 3, (UserItem(says("and hurry")),))
_DECIDE = Decide(
    caller=ADA,
    agent="echo",
    context="context-1",
    thread="thread-1",
    generation=2,
    task="task-1",
    turn="turn-1",
    answer=_ANSWER,
    verdicts=(Verdict("tool-1", "d", "approved", "ada"),),
    question=None,
    resumes=True,
    now=2000,
)
_RESUME = Resume("thread-1", 2, "process-1", 9000, "turn-1", "task-1", 2100, None)
_ALIVE = Heartbeat("process-1", 9000, 0)
_LEFT: dict[str, tuple[tuple[CommitPoint, ...], int, list[str]]] = {
    "nobody has prepared": ((), 0, ["turn-1", "turn-2"]),
    "nobody has prepared, of a process that lives": ((_ALIVE,), 9000, []),
    "nobody has prepared, of a process that died": ((_ALIVE,), 9001, ["turn-1", "turn-2"]),
    "a holder lives": ((PREPARE, _ALIVE), 9000, []),
    "a holder has died": ((PREPARE, _ALIVE), 9001, ["turn-1", "turn-2"]),
    "a holder has died where others wait": ((PREPARE, replace(_ALIVE, alive_until=9999)), 9001, ["turn-1"]),
    "a holder has given up": ((PREPARE, _ALIVE, Release("thread-1", "process-1")), 0, ["turn-1"]),
    "the first has ended": ((PREPARE, COMPLETE, APPEND, replace(FINISH, state=None)), 9001, ["turn-2"]),
}


def _ends(outcome: object) -> ToolEnds:
    item = NewItem(OutputItem("fc-1", "3"), tool_call="tool-1")
    return ToolEnds("thread-1", 2, "turn-1", "call-1", "tool-1", ToolCallStatus.COMPLETED, outcome, 1, item)


class WaitingTests:
    """A part of `LedgerSuite`."""

    # --- decisions

    async def test_a_waiting_turn_is_read_with_what_it_asked(self, ledger: Ledger) -> None:
        await ledger.commit(*_ASKED)
        found = await ledger.waiting_turn("task-1")
        require(found is not None, "there is no waiting turn")
        if found is not None:
            same((found.turn, found.thread, found.inputs, found.base), ("turn-1", "thread-1", 1, None))
            [asked] = found.calls
            told = (asked.call.id, asked.digest, asked.decision, asked.expires_at, asked.outcome)
            same(told, ("tool-1", "d", None, 5000, None))
        context = await ledger.context(ADA, "public-1", "echo")
        same((context and context.waiting, await ledger.waiting_task("thread-1")), ("task-1", "task-1"))
        same(await ledger.open_turns("context-1"), (OpenTurn("turn-1", "task-1", "thread-1", waits=True),))
        same(await ledger.asked_calls("task-1"), ())

    async def test_a_task_without_a_waiting_turn_has_none(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT)
        context = await ledger.context(ADA, "public-1", "echo")
        waits = (
            await ledger.waiting_turn("task-1"),
            await ledger.waiting_task("thread-1"),
            context and context.waiting,
        )
        same(waits, (None, None, None))

    async def test_a_decision_is_stored_with_its_message_and_the_turn_goes_on(self, ledger: Ledger) -> None:
        await ledger.commit(*_ASKED)
        await ledger.commit(_DECIDE)
        [turn] = (await ledger.turns(("task-1",), artifacts=True))["task-1"]
        same((turn.ended, turn.answers), (False, ((3, says("yes")),)))
        [asked] = await ledger.asked_calls("task-1")
        same((asked.call.id, asked.decision, asked.call.status), ("tool-1", "approved", "approved"))
        unsent = await ledger.history("thread-1", unsent_only=True)
        same([record.item for record in unsent], [UserItem(says("and hurry"))])
        await ledger.commit(_RESUME, ToolStarts("thread-1", 3, "tool-1", 2200))
        with pytest.raises(Conflict):
            await ledger.commit(_RESUME)

    async def test_a_rejected_call_does_not_run(self, ledger: Ledger) -> None:
        await ledger.commit(*_ASKED)
        rejected = Verdict("tool-1", "d", "rejected", "ada")
        await ledger.commit(replace(_DECIDE, answer=None, verdicts=(rejected,), resumes=False))
        with pytest.raises(Conflict):
            await ledger.commit(ToolStarts("thread-1", 2, "tool-1", 2200))

    @pytest.mark.parametrize(
        "changed",
        [
            {"caller": Caller("eve", "acme")},
            {"caller": Caller("ada", "other")},
            {"agent": "another"},
            {"context": "context-2"},
            {"generation": 1},
            {"task": "task-2"},
            {"turn": "turn-2"},
            {"verdicts": (Verdict("tool-1", "other", "approved", "ada"),)},
            {"verdicts": (Verdict("tool-2", "d", "approved", "ada"),)},
            {"answer": replace(_ANSWER, ordinal=0)},
        ],
        ids=str,
    )
    async def test_a_decision_that_is_not_for_this_call_stores_nothing(
        self, ledger: Ledger, changed: dict[str, Any]
    ) -> None:
        await ledger.commit(*_ASKED)
        stored = await everything(ledger)
        with pytest.raises(Conflict):
            await ledger.commit(replace(_DECIDE, **changed))
        same(await everything(ledger), stored)

    async def test_a_call_is_decided_once(self, ledger: Ledger) -> None:
        await ledger.commit(*_ASKED)
        await ledger.commit(_DECIDE)
        with pytest.raises(Conflict):
            await ledger.commit(replace(_DECIDE, answer=replace(_ANSWER, ordinal=2)))

    async def test_a_turn_is_due_when_its_time_is_over_or_nothing_is_missing(self, ledger: Ledger) -> None:
        await ledger.commit(*_ASKED)
        mine = ((TaskOwner("acme", "ada", "echo"), "task-1"),)
        same(await ledger.overdue_turns(4999, 4999, 10), ())
        same(await ledger.overdue_turns(5000, 0, 10), mine)
        await ledger.commit(_DECIDE)
        same(await ledger.overdue_turns(9000, 1999, 10), ())
        same(await ledger.overdue_turns(9000, 2000, 10), mine)

    async def test_what_is_approved_for_the_life_of_a_context_is_found_for_its_principal(self, ledger: Ledger) -> None:
        called = replace(_CALLED, tool_calls=(replace(_GATED, server="bank"),))
        await ledger.commit(ACCEPT, PREPARE, called, _ASK)
        always = Verdict("tool-1", "d", "approved", "ada", always=True)
        await ledger.commit(replace(_DECIDE, verdicts=(always,)))
        same(await ledger.standing_approvals("context-1", "ada"), (StandingApproval("bank", "d", "{}"),))
        same(await ledger.standing_approvals("context-1", "eve"), ())
        same(await ledger.standing_approvals("context-2", "ada"), ())

    # --- tool calls

    async def test_a_tool_call_is_open_until_its_outcome_which_it_gets_once(self, ledger: Ledger) -> None:
        await ledger.commit(*numbered(1))
        [call] = await ledger.open_tool_calls("turn-1")
        told = (call.id, call.service_call, call.round, call.at, call.status, call.runs_left)
        same(told, ("tool-1", "call-1", 0, 1200, "announced", 1))
        await ledger.commit(ToolStarts("thread-1", 2, "tool-1", 1300))
        for late in (replace(_ends(3), generation=1), replace(_ends(3), tool_call="tool-9")):
            with pytest.raises(Conflict):
                await ledger.commit(late)
        await ledger.commit(_ends({"sum": 3}))
        same(await ledger.open_tool_calls("turn-1"), ())
        same(
            await ledger.earlier_tool_call("thread-1", "fc-1", "tool-9"),
            EarlierToolCall("add", "{}", ToolCallStatus.COMPLETED, {"sum": 3}),
        )
        same(await ledger.earlier_tool_call("thread-1", "fc-1", "tool-1"), None)
        with pytest.raises(Conflict):
            await ledger.commit(_ends(4))

    async def test_a_call_that_needs_a_consent_waits_and_can_start_again(self, ledger: Ledger) -> None:
        await ledger.commit(*numbered(1))
        await ledger.commit(ToolStarts("thread-1", 2, "tool-1", 1300))
        waits = ToolWaits("thread-1", 2, "tool-1", 5000)
        await ledger.commit(waits)
        [call] = await ledger.open_tool_calls("turn-1")
        same(call.status, "pending_consent")
        with pytest.raises(Conflict):
            await ledger.commit(waits)

    # --- turns that were left

    @pytest.mark.parametrize("name", _LEFT)
    async def test_a_turn_that_no_process_runs_is_found(self, ledger: Ledger, name: str) -> None:
        after, now, found = _LEFT[name]
        await ledger.commit(ACCEPT, replace(FOLLOW_UP, event=None), *after)
        same([left.turn for left in await ledger.unfinished_turns(now)], found)

    async def test_a_turn_that_is_found_comes_with_its_task_and_caller(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        task = TaskRecord("task-1", "context-1", "public-1", "echo", TaskState.WORKING, None, 1100, 1, True, 1000)
        left = UnfinishedTurn("turn-1", "thread-1", 1, task, ADA, process="process-1")
        same(await ledger.unfinished_turns(10_000), (left,))

    async def test_a_turn_that_waits_in_a_queue_is_found_with_the_process_that_had_it(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, RequestCancel(("turn-1",)))
        [found] = await ledger.unfinished_turns(0)
        same((found.waits, found.expired, found.process, found.cancel_asked), (True, False, "process-1", True))

    async def test_a_process_finds_its_own_turns_whichever_processes_live(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, _ALIVE)
        same([left.turn for left in await ledger.unfinished_turns(0, "process-1")], ["turn-1"])

    async def test_the_process_that_has_a_turn_is_known_until_it_has_ended(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        same(await ledger.process_of("turn-1"), "process-1")
        await ledger.commit(COMPLETE, APPEND, FINISH)
        same(await ledger.process_of("turn-1"), None)

    async def test_open_turns_are_those_of_the_context_that_have_not_ended(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, replace(FOLLOW_UP, event=None), PREPARE, APPEND, replace(FINISH, state=None))
        same(await ledger.open_turns("context-1"), (OpenTurn("turn-2", "task-1", "thread-1"),))
        same(await ledger.open_turns("context-2"), ())
