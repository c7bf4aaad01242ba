"""A thread that cannot simply continue: the rows after a new epoch and after a rewind."""

from msgspec.structs import replace

from gateway.ledger.calls import Prepare
from gateway.ledger.threads import BeginEpoch, MarkHandleLost, Rewind
from gateway.ports.conversation import HandleKind, StorageOwner
from gateway.testing.ledger_points import ACCEPT, COMPLETE, FINISH, FOLLOW_UP, PREPARE
from tests.storage.conversation import Recorded

FIRST_TURN = (ACCEPT, PREPARE, COMPLETE, replace(FINISH, events=None))
LOSE = MarkHandleLost("thread-1", 2)
EPOCH = BeginEpoch("thread-1", 2, "thread-1-old", StorageOwner.BACKEND, HandleKind.ROTATING, None, "lost", 1)
NEXT_TASK = replace(FOLLOW_UP, task="task-2", new_task=True, event=None, last_event=0)
SECOND_CALL = Prepare("thread-1", 2, "process-1", 9000, "turn-2", "task-2", "call-2", 0, 0, "resp-1", 2100, None)


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
                "began_at": 1,
                "began_by": "lost",
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
                "began_at": 1000,
                "began_by": "message",
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
