"""The part of the conformance suite on commits: in order, durable, fenced by leases and generations. Law: it knows no store."""

import asyncio
from functools import partial

import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.ledger.calls import NameCall
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import TRIES, CountTries, Fence, Heartbeat, Renew
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import Append, Close, EventRow, Reveal
from gateway.ledger.tool_calls import ToolStarts
from gateway.ledger.turns import IdempotencyKey
from gateway.ports.conversation import HandleKind, StorageOwner
from gateway.testing.checks import bounded, require, same
from gateway.testing.ledger_points import (
    ACCEPT,
    ADA,
    APPEND,
    COMPLETE,
    FINISH,
    FIRST_TURN,
    FOLLOW_UP,
    PREPARE,
    THREAD,
    Opener,
    everything,
    numbered,
)


class CommitTests:
    """A part of `LedgerSuite`."""

    async def test_the_points_of_a_commit_see_those_before_them(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        found = await ledger.thread("thread-1")
        same(found, replace(THREAD, handle="resp-1", generation=2, adapter_state={"seen": 1}))

    # --- order

    async def test_done_is_called_in_the_order_of_submission_with_what_became_of_the_points(
        self, ledger: Ledger
    ) -> None:
        told: list[Exception | None] = []
        events = [Append(EventRow("task-1", number, number, b"%d" % number)) for number in range(2, 50)]
        for event in events:
            ledger.submit((event,), told.append)
        await ledger.commit(ACCEPT)
        same([type(outcome) for outcome in told], [Conflict] * 48)
        order: list[tuple[int, bool]] = []
        for number, event in enumerate(events):
            ledger.submit((event,), partial(_note, order, number))
        require(not order, "`done` was called before `submit` had returned")
        await ledger.commit(replace(PREPARE, event=None))
        same(order, [(number, True) for number in range(48)])
        same([number for number, _ in await ledger.events("task-1", 1)], [*range(2, 50)])

    async def test_one_refused_submission_does_not_change_the_order(self, ledger: Ledger) -> None:
        order: list[tuple[int, bool]] = []
        for number in range(10):
            accept = numbered(number)[0]
            point = accept if number % 3 else replace(accept, new_thread=False)
            ledger.submit((point,), partial(_note, order, number))
        await ledger.commit(Heartbeat("process-1", 9000, 0))
        same(order, [(number, number % 3 != 0) for number in range(10)])

    async def test_turns_of_one_thread_are_numbered_in_the_order_of_their_commits(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT)
        follow_ups = [replace(FOLLOW_UP, turn=f"turn-{n}", event=None, message=ACCEPT.message) for n in range(2, 40)]
        await bounded(asyncio.gather(*(ledger.commit(follow_up) for follow_up in follow_ups)), "38 commits")
        same([left.turn for left in await ledger.unfinished_turns(0)], [f"turn-{n}" for n in range(1, 40)])

    # --- durability

    async def test_a_commit_is_not_taken_back_when_its_caller_is_cancelled(self, ledger: Ledger) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await ledger.commit(ACCEPT)
        await ledger.commit(PREPARE, APPEND)
        require(await ledger.task(ADA, "echo", "task-1") is not None, "the cancelled commit is not there")

    async def test_what_was_committed_is_there_after_opening_again(self, opener: Opener) -> None:
        async with opener() as ledger:
            await ledger.commit(*FIRST_TURN)
            stored, secret = await everything(ledger), await ledger.secret("cursor")
        async with opener() as ledger:
            same(await everything(ledger), stored)
            same(await ledger.secret("cursor"), secret)

    async def test_what_was_submitted_is_stored_before_the_ledger_is_closed(self, opener: Opener) -> None:
        told: list[Exception | None] = []
        async with opener() as ledger:
            await ledger.commit(ACCEPT)
            for number in range(2, 30):
                ledger.submit((Append(EventRow("task-1", number, number, b"{}")),), told.append)
        same(told, [None] * 28)
        async with opener() as ledger:
            same(len(await ledger.events("task-1", 1)), 28)

    async def test_a_closed_ledger_is_unavailable(self, opener: Opener) -> None:
        async with opener() as ledger:
            await ledger.ready()
        for attempt in (ledger.commit(ACCEPT), ledger.ready()):
            with pytest.raises(LedgerUnavailable):
                await bounded(attempt, "a closed ledger refuses")

    # --- leases and generations

    async def test_the_first_preparation_raises_the_generation_and_later_ones_keep_it(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        await ledger.commit(replace(PREPARE, generation=1, attempt=1, service_call="call-2", event=None))
        thread = await ledger.thread("thread-1")
        require(thread is not None and thread.generation == 1, f"found {thread!r}, not generation 1")

    async def test_a_turn_does_not_begin_before_the_earlier_ones_of_its_thread_have_ended(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, FOLLOW_UP)
        second = replace(PREPARE, turn="turn-2", service_call="call-2", event=None)
        with pytest.raises(Conflict):
            await ledger.commit(second)
        await ledger.commit(replace(FINISH, state=None, events=None), second)

    async def test_a_lease_that_was_renewed_is_not_taken_from_its_holder(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, replace(PREPARE, event=None))
        await ledger.commit(Renew(("thread-1",), "stranger", 1), Renew(("thread-1",), "process-1", 9999))
        with pytest.raises(Conflict):
            await ledger.commit(Fence("thread-1", 1, 9001))
        await ledger.commit(Fence("thread-1", 1, 10_000))

    async def test_a_thread_that_the_gateway_owns_never_has_a_handle(self, ledger: Ledger) -> None:
        own = replace(THREAD, owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE)
        await ledger.commit(replace(ACCEPT, thread=own), PREPARE)
        with pytest.raises(Conflict):
            await ledger.commit(COMPLETE)
        await ledger.commit(replace(COMPLETE, handle_out=None, state=None))
        same(await ledger.thread("thread-1"), replace(own, generation=2))

    async def test_evidence_that_comes_after_the_turn_ended_still_counts(self, ledger: Ledger) -> None:
        cancelled = replace(FINISH, status="cancelled", state=TaskState.CANCELED, events=None, last_event=2)
        await ledger.commit(ACCEPT, PREPARE, NameCall("call-1", "resp-1"), cancelled)
        await ledger.commit(COMPLETE)
        thread = await ledger.thread("thread-1")
        require(thread is not None and thread.handle == "resp-1", f"found {thread!r}, not the handle resp-1")

    async def test_a_tool_call_starts_as_often_as_it_may(self, ledger: Ledger) -> None:
        await ledger.commit(*numbered(1))
        start = ToolStarts("thread-1", 2, "tool-1", 1300)
        for late in (replace(start, generation=1), replace(start, tool_call="tool-9")):
            with pytest.raises(Conflict):
                await ledger.commit(late)
        await ledger.commit(start)
        with pytest.raises(Conflict):
            await ledger.commit(start)
        [call] = await ledger.open_tool_calls("turn-1")
        same((call.status, call.runs_left), ("running", 0))

    # --- what a point changes

    async def test_a_task_that_was_hidden_is_shown_while_it_has_not_ended(self, ledger: Ledger) -> None:
        await ledger.commit(replace(ACCEPT, visible=False))
        await ledger.commit(Reveal("task-1"))
        task = await ledger.task(ADA, "echo", "task-1")
        require(task is not None and task.visible, f"found {task!r}, not a visible task")
        await ledger.commit(PREPARE, COMPLETE, APPEND, FINISH)
        with pytest.raises(Conflict):
            await ledger.commit(Reveal("task-1"))

    @pytest.mark.parametrize(("tries", "visible"), [(TRIES - 1, False), (TRIES, True)])
    async def test_the_task_of_a_turn_that_is_given_up_is_shown(
        self, ledger: Ledger, tries: int, visible: bool
    ) -> None:
        await ledger.commit(replace(ACCEPT, visible=False), PREPARE)
        await ledger.commit(CountTries("turn-1", 0, tries))
        task = await ledger.task(ADA, "echo", "task-1")
        require(task is not None and task.visible is visible, f"found {task!r} after {tries} tries")
        with pytest.raises(Conflict):
            await ledger.commit(CountTries("turn-1", 0, tries))

    @pytest.mark.parametrize("state", [TaskState.CANCELED, TaskState.FAILED, TaskState.REJECTED])
    async def test_a_task_that_is_given_up_takes_its_other_turns_along(self, ledger: Ledger, state: TaskState) -> None:
        await ledger.commit(ACCEPT, replace(FOLLOW_UP, event=None), PREPARE)
        ended = replace(FINISH, status="failed", failure_class="interrupted", state=state, events=None, last_event=2)
        await ledger.commit(ended)
        same(await ledger.open_turns("context-1"), ())
        call = await ledger.latest_call("turn-1")
        require(call is not None and call.status == "unknown", f"found {call!r}, not an unknown outcome")

    async def test_a_task_that_waits_is_closed_without_a_turn_once(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN[:-1], replace(FINISH, state=TaskState.INPUT_REQUIRED))
        close = Close("task-1", TaskState.CANCELED, EventRow("task-1", 7, 7, b'{"n":7}'), 7, 1400)
        await ledger.commit(close)
        task = await ledger.task(ADA, "echo", "task-1")
        require(task is not None and (task.state, task.last_event) == (TaskState.CANCELED, 7), f"found {task!r}")
        with pytest.raises(Conflict):
            await ledger.commit(replace(close, event=None))

    async def test_header_and_message_id_are_two_kinds_of_key(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT)
        await ledger.commit(replace(FOLLOW_UP, key=IdempotencyKey("message_id", "key-1")))


def _note(order: list[tuple[int, bool]], number: int, outcome: Exception | None) -> None:
    order.append((number, outcome is None))
