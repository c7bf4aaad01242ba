"""A thread that cannot simply continue: the rows after a lost handle, a new epoch, a rewind and an orphan."""

import pytest
from msgspec.structs import replace

from gateway.ledger.calls import Prepare
from gateway.ledger.errors import Conflict
from gateway.ledger.points import CommitPoint
from gateway.ledger.retention import DeleteContext
from gateway.ledger.threads import BeginEpoch, ConfirmHandle, DeleteOrphan, MarkHandleLost, Rewind
from gateway.ports.conversation import HandleKind, StorageOwner
from tests.storage.conversation import ACCEPT, ADA, COMPLETE, FINISH, FOLLOW_UP, PREPARE, THREAD, Recorded, rows

FIRST_TURN = (ACCEPT, PREPARE, COMPLETE, replace(FINISH, events=None))
LOSE = MarkHandleLost("thread-1", 2)
EPOCH = BeginEpoch("thread-1", 2, "thread-1-old", StorageOwner.BACKEND, HandleKind.ROTATING, None)
NEXT_TASK = replace(FOLLOW_UP, task="task-2", new_task=True, event=None, last_event=0)
SECOND_CALL = Prepare("thread-1", 2, "process-1", 9000, "turn-2", "task-2", "call-2", 0, 0, "resp-1", 2100, None)


async def test_a_lost_handle_stays_and_marks_its_thread(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    before = await database.ledger.thread("thread-1")
    assert before is not None
    assert not before.lost
    assert await database.changed_by(LOSE) == {"thread": {"thread-1": {"state": "lost"}}}
    assert await database.ledger.thread("thread-1") == replace(before, lost=True)
    context = await database.ledger.context(ADA, "public-1", "echo")
    assert context is not None
    assert context.thread == replace(before, lost=True)
    await database.ledger.commit(NEXT_TASK)


async def test_a_new_epoch_keeps_the_row_that_lives_and_sets_aside_what_it_was(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN, LOSE)
    assert await database.changed_by(EPOCH) == {
        "thread": {
            "thread-1": {
                "epoch": 2,
                "generation": 3,
                "handle": None,
                "clean_handle": None,
                "adapter_state": None,
                "state": "open",
            },
            "thread-1-old": {
                "id": "thread-1-old",
                "context": "context-1",
                "agent": "echo",
                "epoch": 1,
                "storage_owner": "backend",
                "handle_kind": "rotating",
                "handle": "resp-1",
                "clean_handle": "resp-1",
                "generation": 3,
                "state": "closed",
                "adapter_state": '{"seen":1}',
            },
        }
    }
    again = replace(
        EPOCH, generation=3, closed="thread-1-older", owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE
    )
    await database.ledger.commit(again)
    thread = await database.ledger.thread("thread-1")
    assert thread is not None
    assert (thread.epoch, thread.owner, thread.handle_kind, thread.generation) == (3, "gateway", "none", 4)


async def test_an_epoch_can_begin_from_a_handle(database: Recorded) -> None:
    kept = replace(THREAD, owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE)
    await database.ledger.commit(
        replace(ACCEPT, thread=kept), PREPARE, replace(COMPLETE, handle_out=None), replace(FINISH, events=None)
    )
    await database.ledger.commit(replace(EPOCH, handle="resp-9"))
    thread = await database.ledger.thread("thread-1")
    assert thread is not None
    assert (thread.owner, thread.handle, thread.epoch) == ("backend", "resp-9", 2)


async def test_the_handles_of_every_epoch_are_queued_for_deletion_with_the_context(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN, EPOCH)
    await database.ledger.commit(DeleteContext(ADA, "context-1", 5000))
    assert {job["handle"] for job in rows(database.path)["delete_job"].values()} == {"resp-1"}


async def test_a_rewound_thread_returns_to_the_base_of_the_turn_and_queues_its_handles_for_deletion(
    database: Recorded,
) -> None:
    await database.ledger.commit(*FIRST_TURN, NEXT_TASK)
    moved = replace(
        COMPLETE,
        generation=3,
        turn="turn-2",
        service_call="call-2",
        handle_in="resp-1",
        handle_out="resp-2",
        items=(),
        tool_calls=(),
        sent=(),
    )
    await database.ledger.commit(SECOND_CALL, moved)
    assert await database.changed_by(Rewind("thread-1", "turn-2", "resp-1", 2300)) == {
        "thread": {"thread-1": {"handle": "resp-1", "clean_handle": "resp-1", "generation": 5}},
        "delete_job": {
            "thread-1 resp-2": {
                "id": "thread-1 resp-2",
                "adapter": "echo",
                "handle": "resp-2",
                "due_at": 2300,
                "attempts": 0,
            }
        },
    }


async def test_a_thread_that_did_not_move_need_not_go_back(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN, NEXT_TASK)
    await database.ledger.commit(SECOND_CALL)
    assert await database.changed_by(Rewind("thread-1", "turn-2", "resp-1", 2300)) == {}


@pytest.mark.parametrize("handle", [None, "conv-1"])
async def test_a_conversation_is_confirmed_on_a_thread_that_has_none(database: Recorded, handle: str | None) -> None:
    static = replace(ACCEPT.thread, handle_kind=HandleKind.STATIC, handle=handle)
    await database.ledger.commit(replace(ACCEPT, thread=static), PREPARE)
    confirm = ConfirmHandle("thread-1", 1, "conv-2")
    if handle is None:
        assert await database.changed_by(confirm) == {
            "thread": {"thread-1": {"handle": "conv-2", "clean_handle": "conv-2", "generation": 2}}
        }
    else:
        with pytest.raises(Conflict):
            await database.ledger.commit(confirm)


async def test_an_orphan_is_queued_for_deletion_once(database: Recorded) -> None:
    orphan = DeleteOrphan("thread-1", "echo", "resp-9", 2300)
    assert await database.changed_by(orphan, orphan) == {
        "delete_job": {
            "thread-1 resp-9": {
                "id": "thread-1 resp-9",
                "adapter": "echo",
                "handle": "resp-9",
                "due_at": 2300,
                "attempts": 0,
            }
        }
    }
    assert await database.changed_by(orphan) == {}


@pytest.mark.parametrize("point", [replace(LOSE, generation=1), replace(EPOCH, generation=1)])
async def test_a_late_commit_changes_no_epoch(database: Recorded, point: CommitPoint) -> None:
    await database.ledger.commit(*FIRST_TURN)
    with pytest.raises(Conflict):
        await database.ledger.commit(point)


async def test_the_items_of_a_turn_say_that_it_failed(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN[:-1], replace(FIRST_TURN[-1], status="failed"))
    await database.ledger.commit(NEXT_TASK)
    items = await database.ledger.history("thread-1", unsent_only=False)
    assert [item.failed for item in items] == [True] * 4 + [False]
