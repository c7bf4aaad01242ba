"""The part of the conformance suite on refusals: a Conflict changes nothing. Law: it knows no store."""

import asyncio

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Part, TaskState
from gateway.ledger.calls import NameCall, NewItem
from gateway.ledger.errors import Conflict
from gateway.ledger.leases import Claim, Heartbeat
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import Close, EventRow
from gateway.ledger.threads import Caller
from gateway.ports.conversation import AssistantItem, OutputItem
from gateway.testing.checks import bounded, same
from gateway.testing.ledger_points import (
    ACCEPT,
    APPEND,
    COMPLETE,
    ELSEWHERE,
    FAIL,
    FINISH,
    FOLLOW_UP,
    OTHER_THREAD,
    PREPARE,
    THREAD,
    everything,
    numbered,
)

ACCEPTED: tuple[CommitPoint, ...] = (ACCEPT,)
PREPARED = (ACCEPT, PREPARE)
COMPLETED = (*PREPARED, COMPLETE, APPEND)
ENDED = (*COMPLETED, FINISH)
CLAIM = Claim("turn-1", "process-1", "process-2", 9001)

CONFLICTS: dict[str, tuple[tuple[CommitPoint, ...], CommitPoint]] = {
    "the same context again": (ACCEPTED, replace(ELSEWHERE, context_public="public-1")),
    "an unknown context": (ACCEPTED, replace(FOLLOW_UP, context_row="context-9")),
    "a context of another principal": (ACCEPTED, replace(FOLLOW_UP, caller=Caller("eve", "acme"))),
    "a context of another tenant": (ACCEPTED, replace(FOLLOW_UP, caller=Caller("ada"))),
    "a second live thread": (ACCEPTED, replace(OTHER_THREAD, agent="echo", thread=replace(THREAD, id="thread-2"))),
    "a thread of another agent": (ACCEPTED, replace(FOLLOW_UP, agent="other", new_task=True, task="task-2")),
    "a thread of another context": (
        ACCEPTED,
        replace(ELSEWHERE, new_thread=False, thread=THREAD),
    ),
    "the same task again": (ACCEPTED, replace(FOLLOW_UP, new_task=True)),
    "a task of another agent": ((ACCEPT, OTHER_THREAD), replace(FOLLOW_UP, task="task-9")),
    "a task that has ended": (ENDED, replace(FOLLOW_UP, event=None)),
    "a known idempotency key": (ACCEPTED, replace(FOLLOW_UP, key=ACCEPT.key)),
    "the same turn again": (ACCEPTED, replace(FOLLOW_UP, turn="turn-1")),
    "an event that is there": (ACCEPTED, replace(FOLLOW_UP, event=ACCEPT.event)),
    "a lease in another generation": (ACCEPTED, replace(PREPARE, generation=1)),
    "a lease of another": (
        (ACCEPT, replace(PREPARE, event=None)),
        replace(PREPARE, generation=1, holder="process-2", service_call="call-2", now=9000),
    ),
    "a later attempt without the lease": (
        PREPARED,
        replace(PREPARE, generation=1, attempt=1, holder="process-2", service_call="call-2", event=None),
    ),
    "a later attempt in another generation": (
        PREPARED,
        replace(PREPARE, generation=0, attempt=1, service_call="call-2", event=None),
    ),
    "a call of a turn that has ended": (
        ENDED,
        replace(PREPARE, generation=1, service_call="call-2", round=1, event=None),
    ),
    "a call of another task's turn": ((ACCEPT, OTHER_THREAD), replace(PREPARE, task="task-9", event=None)),
    "the same attempt again": (PREPARED, replace(PREPARE, generation=1, service_call="call-2", event=None)),
    "a task set to work that has ended": (
        (ACCEPT, replace(FOLLOW_UP, new_task=True, task="task-2", event=None), *PREPARED[1:], COMPLETE, APPEND, FINISH),
        replace(PREPARE, generation=1, turn="turn-2", task="task-1", service_call="call-2", event=None),
    ),
    "a pending handle of an unknown call": (PREPARED, NameCall("call-9", "resp-1")),
    "a pending handle of a call that is over": ((*PREPARED, COMPLETE), NameCall("call-1", "resp-1")),
    "a handle moved in another generation": (PREPARED, replace(COMPLETE, generation=0)),
    "a handle moved from elsewhere": (PREPARED, replace(COMPLETE, handle_in="resp-0")),
    "a call completed twice": ((*PREPARED, COMPLETE), replace(COMPLETE, handle_in="resp-1")),
    "a call of another turn": (PREPARED, replace(COMPLETE, turn="turn-9")),
    "a second output of a tool call": (
        PREPARED,
        replace(COMPLETE, items=(*COMPLETE.items, NewItem(OutputItem("fc-1", "again"), tool_call="tool-1"))),
    ),
    "an item of an unknown tool call": (
        PREPARED,
        replace(COMPLETE, items=(NewItem(AssistantItem((Part(text="x"),)), tool_call="tool-9"),)),
    ),
    "a tool call in a state that there is not": (
        PREPARED,
        replace(COMPLETE, items=(), tool_calls=(replace(COMPLETE.tool_calls[0], status="odd"),)),
    ),
    "an open tool call with an outcome": (
        PREPARED,
        replace(COMPLETE, items=(), tool_calls=(replace(COMPLETE.tool_calls[0], status="running", outcome=1),)),
    ),
    "a failure in another generation": (PREPARED, replace(FAIL, generation=0)),
    "a failure of a call that is over": ((*PREPARED, COMPLETE), FAIL),
    "events that overlap": ((*PREPARED, APPEND), replace(APPEND, events=EventRow("task-1", 5, 6, b"{}\n{}"))),
    "events that are wrapped": (
        (*PREPARED, APPEND),
        replace(APPEND, events=EventRow("task-1", 2, 6, b"{}\n{}\n{}\n{}\n{}")),
    ),
    "events behind a gap": (PREPARED, replace(APPEND, events=EventRow("task-1", 4, 4, b"{}"))),
    "events of an unknown task": (PREPARED, replace(APPEND, events=EventRow("task-9", 1, 1, b"{}"))),
    "a turn that has ended": (ENDED, replace(FINISH, events=None, state=TaskState.FAILED)),
    "a turn of another thread": (COMPLETED, replace(FINISH, thread="thread-9")),
    "a turn that waits in a process that lives": ((ACCEPT, Heartbeat("process-1", 9001, 0)), CLAIM),
    "a turn that waits elsewhere by now": (ACCEPTED, replace(CLAIM, previous_process="process-3")),
    "a turn to take that has begun": (PREPARED, CLAIM),
    "a turn begun by a process that does not have it": ((ACCEPT, CLAIM), PREPARE),
    "a turn ended by a process that does not have it": (
        (*PREPARED, COMPLETE, APPEND),
        replace(FINISH, process="process-2"),
    ),
    "a closed task that works": (PREPARED, Close("task-1", TaskState.CANCELED, None, 2, 1300)),
}


class RefusalTests:
    """A part of `LedgerSuite`."""

    @pytest.mark.parametrize("name", CONFLICTS)
    async def test_a_point_that_does_not_find_its_rows_is_a_conflict_and_changes_nothing(
        self, ledger: Ledger, name: str
    ) -> None:
        before, point = CONFLICTS[name]
        for earlier in before:
            await ledger.commit(earlier)
        stored = await everything(ledger)
        with pytest.raises(Conflict):
            await ledger.commit(point)
        same(await everything(ledger), stored)

    async def test_points_of_one_commit_are_stored_together_or_not_at_all(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        stored = await everything(ledger)
        with pytest.raises(Conflict):
            await ledger.commit(COMPLETE, APPEND, replace(FINISH, turn="turn-9"))
        same(await everything(ledger), stored)

    async def test_a_refused_commit_takes_none_along_that_is_made_at_the_same_time(self, ledger: Ledger) -> None:
        good = [numbered(number)[0] for number in range(12)]
        bad = [replace(accept, thread=replace(THREAD, id=f"odd-{n}")) for n, accept in enumerate(good)]
        commits = [ledger.commit(point) for pair in zip(good, bad, strict=True) for point in pair]
        outcomes = await bounded(asyncio.gather(*commits, return_exceptions=True), "24 commits")
        same([type(outcome) for outcome in outcomes], [type(None), Conflict] * 12)
        for number, accept in enumerate(good):
            same(await ledger.thread(f"thread-{number}"), accept.thread)
            same(await ledger.thread(f"odd-{number}"), None)
