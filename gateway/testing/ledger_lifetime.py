"""The part of the conformance suite on what goes and what travels: deletion, expiry, the outbox of jobs at backends,
export and import, adoption. Law: it knows no store."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState, TaskStatus, TaskStatusUpdateEvent
from gateway.ledger.calls import NameCall, NewItem, NewToolCall
from gateway.ledger.documents import Adopt, ContextDocument, Import
from gateway.ledger.errors import Conflict
from gateway.ledger.events import entry
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.retention import (
    DeleteContext,
    Deletion,
    EndDeletion,
    EndWithdrawal,
    ExpireContext,
    ExpireTasks,
    MoveDeletion,
    MoveWithdrawal,
    PurgeContext,
    Withdrawal,
)
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.tasks import EventRow, TaskOwner, Usage
from gateway.ledger.threads import BeginEpoch, Caller, DeleteOrphan, KeepHandle, MarkSynced, MarkUnsynced, Withdraw
from gateway.ports.conversation import HandleKind, OpaqueItem, StorageOwner
from gateway.testing.checks import bounded, require, same
from gateway.testing.ledger_points import (
    ACCEPT,
    ADA,
    APPEND,
    COMPLETE,
    ELSEWHERE,
    FINISH,
    FIRST_TURN,
    FOLLOW_UP,
    PREPARE,
    THREAD,
    everything,
    says,
)

_DELETE = DeleteContext(ADA, "context-1", 5000)
_EXPIRE = ExpireContext("context-1", 5000, 9000)
_ORPHAN = DeleteOrphan("thread-1", "echo", "resp-1", 1300)
_LEFT_WAITING: tuple[CommitPoint, ...] = (
    replace(ACCEPT, thread=replace(THREAD, handle_kind=HandleKind.STATIC)),
    PREPARE,
    NameCall("call-1", "conv-1", "run-1"),
    replace(COMPLETE, handle_out="conv-1"),
    replace(FINISH, state=TaskState.INPUT_REQUIRED, events=None),
)
"""A turn in a conversation of the backend that ended with a question."""
_WITHDRAW = Withdraw("task-1", 2000)
_OWNER = TaskOwner("acme", "ada", "echo")
_EVE = Caller("eve", "elsewhere")
_VALUE = {"ü": [None, 10**19, 1e-9, ""], "": {}}


def _log(first: int, last: int) -> EventRow:
    status = TaskStatus(state=TaskState.WORKING)
    update = TaskStatusUpdateEvent(task_id="task-1", context_id="public-1", status=status)
    lines = (entry(replace(update, metadata={"n": number, "v": _VALUE})) for number in range(first, last + 1))
    return EventRow("task-1", first, last, b"\n".join(lines))


_SAID: tuple[CommitPoint, ...] = (
    replace(ACCEPT, event=_log(1, 1)),
    replace(PREPARE, event=_log(2, 2)),
    NameCall("call-1", "resp-1", "run-1"),
    replace(
        COMPLETE,
        items=(*COMPLETE.items, NewItem(OpaqueItem("future", _VALUE), "item-2", unsent=True)),
        tool_calls=(
            *COMPLETE.tool_calls,
            NewToolCall("tool-2", 1, "fc-2", "wait", "{", "client", ToolCallStatus.ANNOUNCED, None),
        ),
        state_version=3,
    ),
    replace(APPEND, events=_log(3, 5)),
    replace(
        FINISH,
        state=TaskState.INPUT_REQUIRED,
        message=says("which?"),
        events=_log(6, 6),
        usage=Usage(input_tokens=5, total_tokens=7),
        artifacts=msgspec.json.encode([{"artifact": {"artifactId": "a", "parts": [{"data": _VALUE}]}}]),
    ),
)


async def _exported(ledger: Ledger, caller: Caller = ADA) -> ContextDocument:
    found = await ledger.export(caller, "public-1")
    if found is None:
        raise AssertionError("there is nothing to export")
    return found


async def _purged(ledger: Ledger) -> int:
    """Purges the tombstone. Returns how many commits that took."""
    pieces = 0
    while await ledger.purge_pending("context-1"):
        await ledger.commit(PurgeContext("context-1", 9100))
        pieces += 1
        require(pieces < 10_000, "a tombstone has rows to purge for ever")
    return pieces


class LifetimeTests:
    """A part of `LedgerSuite`."""

    # --- a deleted context

    async def test_a_deleted_context_cannot_be_read_and_another_stays(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        await ledger.commit(ELSEWHERE)
        await ledger.commit(_DELETE)
        await _purged(ledger)
        found = await ledger.context(ADA, "public-1", "echo")
        same((found and (found.state, found.thread)), ("deleted", None))
        same(await ledger.task(ADA, "echo", "task-1"), None)
        same(await ledger.events("task-1", 0), ())
        same(await ledger.history("thread-1", unsent_only=False), ())
        same(await ledger.latest_events(("task-1", "task-9")), {"task-9": 0})
        same(await ledger.thread("thread-2"), ELSEWHERE.thread)

    async def test_what_comes_too_late_for_a_deleted_context_is_not_stored(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        await ledger.commit(_DELETE)
        stored = await everything(ledger)
        for late in (APPEND, COMPLETE, FINISH, FOLLOW_UP, PREPARE, NameCall("call-1", "resp-1"), _DELETE):
            with pytest.raises(Conflict):
                await ledger.commit(late)
        with pytest.raises(Conflict):
            await ledger.commit(replace(ELSEWHERE, context_public="public-1"))
        same(await everything(ledger), stored)

    @pytest.mark.parametrize("other", [replace(_DELETE, caller=_EVE), replace(_DELETE, context="context-9")])
    async def test_a_context_that_is_not_the_callers_stays(self, ledger: Ledger, other: DeleteContext) -> None:
        await ledger.commit(*FIRST_TURN)
        stored = await everything(ledger)
        with pytest.raises(Conflict):
            await ledger.commit(other)
        same(await everything(ledger), stored)

    async def test_a_long_conversation_cannot_be_read_at_once_and_goes_piece_by_piece(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        for number in range(2, 500):
            task = replace(FOLLOW_UP, task=f"task-{number}", turn=f"turn-{number}", new_task=True, event=None)
            await ledger.commit(task)
        await ledger.commit(_DELETE)
        same(await ledger.task(ADA, "echo", "task-499"), None)
        [context] = await ledger.aged_contexts(0, "", 10)
        same(context.purge_pending, await ledger.purge_pending("context-1"))
        require(await _purged(ledger) > 0, "500 turns were deleted in one commit")
        [context] = await ledger.aged_contexts(0, "", 10)
        same(context.purge_pending, False)
        same(await ledger.history("thread-1", unsent_only=False), ())

    async def test_every_handle_that_a_backend_named_is_queued_for_deletion_once(self, ledger: Ledger) -> None:
        epoch = BeginEpoch("thread-1", 2, "thread-old", StorageOwner.BACKEND, HandleKind.ROTATING, None, "lost", 1)
        again = replace(FOLLOW_UP, task="task-2", turn="turn-2", new_task=True, event=None)
        begun = replace(PREPARE, generation=3, turn="turn-2", task="task-2", service_call="call-2", event=None)
        await ledger.commit(*FIRST_TURN, epoch)
        await ledger.commit(again, begun, NameCall("call-2", "resp-2"), _DELETE)
        await _purged(ledger)
        jobs = [(job.agent, job.handle, job.attempts) for job in await ledger.deletions(10)]
        same(sorted(jobs), [("echo", "resp-1", 0), ("echo", "resp-2", 0)])

    async def test_a_history_of_the_gateway_has_nothing_to_delete_at_a_backend(self, ledger: Ledger) -> None:
        own = replace(THREAD, owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE)
        await ledger.commit(replace(ACCEPT, thread=own), PREPARE, replace(COMPLETE, handle_out=None))
        await ledger.commit(_DELETE)
        await _purged(ledger)
        same(await ledger.deletions(10), ())

    # --- expiry

    async def test_a_context_that_was_used_meanwhile_does_not_expire(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        stored = await everything(ledger)
        with pytest.raises(Conflict):
            await ledger.commit(replace(_EXPIRE, idle_before=1000))
        same(await everything(ledger), stored)

    async def test_aged_contexts_are_listed_with_their_pending_work(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)

        async def aged(idle_before: int) -> list[tuple[str, bool, bool]]:
            found = await ledger.aged_contexts(idle_before, "", 10)
            return [(each.public_id, each.idle, each.purge_pending) for each in found]

        same(await aged(1000), [("public-1", False, False)])
        same(await aged(1001), [("public-1", True, False)])
        await ledger.commit(_EXPIRE)
        same(await aged(1001), [("public-1", False, True)])
        same(await ledger.task(ADA, "echo", "task-1"), None)
        with pytest.raises(Conflict):
            await ledger.commit(FOLLOW_UP)
        await _purged(ledger)
        same(await aged(1001), [("public-1", False, False)])
        same(await ledger.aged_contexts(1001, "context-1", 10), ())
        same([job.handle for job in await ledger.deletions(10)], ["resp-1"])

    @pytest.mark.parametrize("records", [False, True])
    async def test_the_events_of_an_ended_task_go_and_its_conversation_stays(
        self, ledger: Ledger, records: bool
    ) -> None:
        await ledger.commit(*FIRST_TURN)
        history = await ledger.history("thread-1", unsent_only=False)
        before = await ledger.whole_task(ADA, "echo", "task-1")
        await ledger.commit(ExpireTasks(("task-1",), records=records))
        same(await ledger.events("task-1", 0), ())
        same(await ledger.history("thread-1", unsent_only=False), history)
        replay = await ledger.replay(ADA, "echo", ACCEPT.key) if ACCEPT.key else None
        if records:
            same(replay, None)
            task = await ledger.task(ADA, "echo", "task-1")
            require(task is None or not task.visible, f"the expired task {task!r} is told")
        else:
            same(await ledger.whole_task(ADA, "echo", "task-1"), before)
            require(replay is not None, "the idempotency key has gone with the events")

    @pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, None])
    async def test_a_task_that_has_not_ended_does_not_expire(self, ledger: Ledger, state: TaskState | None) -> None:
        await ledger.commit(*FIRST_TURN[:-1], *([replace(FINISH, state=state)] if state else []))
        stored = await everything(ledger)
        same(await ledger.ended_tasks(_OWNER, 9999, (-1, ""), 10), ())
        await ledger.commit(ExpireTasks(("task-1",), records=False))
        same(await everything(ledger), stored)

    async def test_tasks_are_found_by_their_owners_the_oldest_first(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        same(await ledger.next_owner(TaskOwner()), _OWNER)
        same(await ledger.next_owner(_OWNER), None)
        same(await ledger.ended_tasks(_OWNER, 1300, (-1, ""), 10), ())
        [task] = await ledger.ended_tasks(_OWNER, 1301, (-1, ""), 10)
        same((task.id, task.status_at, task.logged), ("task-1", 1300, True))
        same(await ledger.ended_tasks(_OWNER, 1301, (1300, "task-1"), 10), ())

    # --- the outbox of deletions

    async def test_a_deletion_is_made_once_however_often_it_is_queued(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT)
        await ledger.commit(_ORPHAN, _ORPHAN)
        await ledger.commit(_ORPHAN, replace(_ORPHAN, handle="resp-2", now=1400))
        jobs = await ledger.deletions(10)
        same([(job.handle, job.due_at) for job in jobs], [("resp-1", 1300), ("resp-2", 1400)])
        same(jobs[0], Deletion(jobs[0].job, "echo", "resp-1", 1300, 0))
        same(await ledger.deletions(1), jobs[:1])
        await ledger.commit(KeepHandle("thread-1", "resp-1"), EndDeletion(jobs[1].job, 1400))
        same(await ledger.deletions(10), ())

    async def test_a_handle_that_a_completed_call_confirmed_is_no_orphan(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        await ledger.commit(_ORPHAN)
        same(await ledger.deletions(10), ())

    async def test_a_handle_whose_call_is_still_to_be_looked_up_is_no_orphan(self, ledger: Ledger) -> None:
        unheard = replace(FINISH, status="failed", failure_class="restarted", state=TaskState.FAILED, events=None)
        await ledger.commit(ACCEPT, PREPARE, NameCall("call-1", "resp-1"), unheard, MarkUnsynced("thread-1", "turn-1"))
        await ledger.commit(_ORPHAN)
        same(await ledger.deletions(10), ())
        await ledger.commit(MarkSynced("thread-1", 1), _ORPHAN)
        same([job.handle for job in await ledger.deletions(10)], ["resp-1"])

    async def test_a_deletion_that_was_given_up_is_not_found_again(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT)
        await ledger.commit(_ORPHAN)
        [job] = await ledger.deletions(10)
        await ledger.commit(MoveDeletion(job.job, job.due_at, None, 8))
        await ledger.commit(_ORPHAN)
        same(await ledger.deletions(10), ())

    async def test_who_does_the_jobs_at_backends_is_woken_after_each_commit_that_queues_some(
        self, ledger: Ledger
    ) -> None:
        deletions, withdrawals = asyncio.Event(), asyncio.Event()
        for woken in (deletions, withdrawals):
            ledger.on_backend_job(woken.set)
        await ledger.commit(*FIRST_TURN)
        require(not deletions.is_set(), "it was woken although nothing is to be done")
        await ledger.commit(_DELETE)
        await bounded(asyncio.gather(deletions.wait(), withdrawals.wait()), "waking who does the jobs")

    # --- what was left waiting at a backend

    async def test_what_the_last_call_of_a_task_left_at_its_backend_is_withdrawn_once(self, ledger: Ledger) -> None:
        await ledger.commit(*_LEFT_WAITING)
        same((await ledger.next_withdrawals(10), await ledger.withdrawals("thread-1")), ((), ()))
        for _ in range(2):
            await ledger.commit(_WITHDRAW)
        [job] = await ledger.next_withdrawals(10)
        same(job, Withdrawal(job.job, "echo", "thread-1", "conv-1", "run-1", 2000, 0))
        same(await ledger.withdrawals("thread-1"), (job,))
        thread = await ledger.thread("thread-1")
        require(thread is not None and thread.withdraws, f"found {thread!r}, which has nothing to withdraw")
        await ledger.commit(MoveWithdrawal(job.job, 2000, 3000, 1))
        with pytest.raises(Conflict):
            await ledger.commit(MoveWithdrawal(job.job, 2000, 4000, 1))
        same(await ledger.next_withdrawals(10), (replace(job, due_at=3000, attempts=1),))
        for _ in range(2):
            await ledger.commit(EndWithdrawal(job.job, "thread-1"))
        same(await ledger.next_withdrawals(10), ())
        thread = await ledger.thread("thread-1")
        require(thread is not None and not thread.withdraws, f"found {thread!r}, which has something to withdraw")

    @pytest.mark.parametrize(
        "left",
        [
            (*_LEFT_WAITING[:2], NameCall("call-1", "conv-1"), *_LEFT_WAITING[3:]),
            (replace(ACCEPT, thread=THREAD), *_LEFT_WAITING[1:]),
            _LEFT_WAITING[:3],
        ],
        ids=["without a name", "on a chain of handles", "of a call that is not complete"],
    )
    async def test_nothing_is_withdrawn_that_cannot_wait_there(
        self, ledger: Ledger, left: tuple[CommitPoint, ...]
    ) -> None:
        await ledger.commit(*left)
        await ledger.commit(_WITHDRAW)
        same((await ledger.next_withdrawals(10), await ledger.withdrawals("thread-1")), ((), ()))

    # --- documents

    async def test_an_imported_context_is_the_exported_one(self, ledger: Ledger) -> None:
        await ledger.commit(*_SAID)
        document = await _exported(ledger)
        history = await ledger.history("thread-1", unsent_only=False)
        whole = await ledger.whole_task(ADA, "echo", "task-1")
        travelled = msgspec.json.decode(msgspec.json.encode(document), type=ContextDocument)
        renamed = _renamed(travelled)
        await ledger.commit(Import(_EVE, renamed, 7777))
        again = await _exported(ledger, _EVE)
        same(replace(again, last_used_at=document.last_used_at), renamed)
        same(again.last_used_at, 7777)
        theirs = await ledger.history("new-thread-1", unsent_only=False)
        same([(record.position, record.item) for record in theirs], [(r.position, r.item) for r in history])
        found = await ledger.whole_task(_EVE, "echo", "new-task-1")
        same(found and found[1], whole and whole[1])
        same(await ledger.task(ADA, "echo", "new-task-1"), None)

    async def test_an_imported_context_goes_on_where_it_stood(self, ledger: Ledger) -> None:
        await ledger.commit(*_SAID)
        await ledger.commit(Import(_EVE, _renamed(await _exported(ledger)), 7777))
        context = await ledger.context(_EVE, "public-1", "echo")
        if context is None or context.thread is None:
            raise AssertionError(f"found {context!r}, not the imported context with its thread")
        thread = context.thread
        same((thread.handle, thread.adapter_state, thread.state_version), ("resp-1", {"seen": 1}, 3))
        known = replace(FOLLOW_UP, caller=_EVE, context_row="new-context-1", thread=thread, task="new-task-1")
        await ledger.commit(replace(known, event=EventRow("new-task-1", 7, 7, b"{}"), last_event=7))

    @pytest.mark.parametrize("caller", [ADA, _EVE])
    async def test_an_import_writes_over_nothing_and_stores_no_part(self, ledger: Ledger, caller: Caller) -> None:
        await ledger.commit(*_SAID)
        document, stored = await _exported(ledger), await everything(ledger)
        with pytest.raises(Conflict):
            await ledger.commit(Import(caller, document, 7777))
        same(await everything(ledger), stored)
        same(await ledger.export(_EVE, "public-1"), None)

    async def test_a_context_at_work_is_not_exported(self, ledger: Ledger) -> None:
        await ledger.commit(*_SAID[:-1])
        with pytest.raises(Conflict):
            await ledger.export(ADA, "public-1")

    @pytest.mark.parametrize(("caller", "public_id"), [(_EVE, "public-1"), (ADA, "public-2")])
    async def test_only_the_callers_own_context_is_exported(
        self, ledger: Ledger, caller: Caller, public_id: str
    ) -> None:
        await ledger.commit(*_SAID)
        same(await ledger.export(caller, public_id), None)

    async def test_a_tombstone_is_not_exported(self, ledger: Ledger) -> None:
        await ledger.commit(*_SAID)
        await ledger.commit(_DELETE)
        same(await ledger.export(ADA, "public-1"), None)

    async def test_an_adopted_context_begins_at_the_handle_which_is_not_ours_to_delete(self, ledger: Ledger) -> None:
        thread = replace(THREAD, handle="resp-0")
        await ledger.commit(Adopt(ADA, "public-1", thread, 500))
        context = await ledger.context(ADA, "public-1", "echo")
        same(context and context.thread, thread)
        with pytest.raises(Conflict):
            await ledger.commit(Adopt(ADA, "public-1", replace(thread, id="t", context="c"), 500))
        await ledger.commit(_DELETE)
        await _purged(ledger)
        same(await ledger.deletions(10), ())


def _renamed(document: ContextDocument) -> ContextDocument:
    """The same context with other ids of its own, so that it fits into the database that it came from."""
    text = msgspec.json.encode(document).decode()
    for name in ("context-1", "thread-1", "task-1", "turn-1", "call-1", "tool-1", "tool-2"):
        text = text.replace(f'"{name}"', f'"new-{name}"')
    return msgspec.json.decode(text, type=ContextDocument)
