"""C7: the rows that remain of a deleted context."""

import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.ledger.calls import NameCall, Prepare
from gateway.ledger.documents import Adopt
from gateway.ledger.errors import Conflict
from gateway.ledger.retention import DeleteContext, PurgeContext
from gateway.ledger.tasks import EventRow
from gateway.ledger.threads import BeginEpoch, Caller
from gateway.ports.conversation import HandleKind, StorageOwner
from storage.write.units import TURNS_AT_ONCE
from tests.storage.conversation import (
    ACCEPT,
    ADA,
    APPEND,
    COMPLETE,
    FINISH,
    FOLLOW_UP,
    PREPARE,
    THREAD,
    Recorded,
    rows,
)

DELETE = DeleteContext(ADA, "context-1", 5000)
FIRST_TURN = (ACCEPT, PREPARE, NameCall("call-1", "resp-1"), COMPLETE, APPEND, FINISH)
HIDDEN = replace(
    FOLLOW_UP, task="task-2", new_task=True, visible=False, event=EventRow("task-2", 1, 1, b'{"n":1}'), last_event=1
)
SECOND_CALL = Prepare(
    thread="thread-1",
    generation=2,
    holder="process-1",
    lease_until=9000,
    turn="turn-2",
    task="task-2",
    service_call="call-2",
    round=0,
    attempt=0,
    handle_in="resp-1",
    now=2100,
    event=None,
)
ELSEWHERE = replace(
    ACCEPT,
    context_row="context-2",
    context_public="public-2",
    thread=replace(THREAD, id="thread-2", context="context-2"),
    task="task-9",
    turn="turn-9",
    key=None,
    event=EventRow("task-9", 1, 1, b'{"n":1}'),
)
PURGED = ("task", "turn", "input", "service_call", "tool_call", "history_item", "event")


async def test_the_whole_conversation_is_purged_and_another_context_stays(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    await database.ledger.commit(HIDDEN, SECOND_CALL)
    mine = rows(database.path)
    assert all(mine[table] for table in PURGED)
    await database.ledger.commit(ELSEWHERE)
    others = {table: found.keys() - mine[table].keys() for table, found in rows(database.path).items()}

    await database.ledger.commit(DELETE)

    left = rows(database.path)
    assert {table: left[table].keys() for table in PURGED} == {table: others[table] for table in PURGED}


async def test_a_tombstone_stays_and_the_threads_generation_moves_on(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    before = rows(database.path)

    await database.ledger.commit(DELETE)

    after = rows(database.path)
    assert after["context"]["context-1",] == before["context"]["context-1",] | {
        "state": "deleted",
        "last_used_at": 5000,
    }
    assert after["thread"]["thread-1",] == before["thread"]["thread-1",] | {
        "state": "deleted",
        "generation": 3,
        "handle": None,
        "clean_handle": None,
        "adapter_state": None,
        "lease_holder": None,
        "lease_until": None,
    }


async def test_every_handle_that_the_backend_named_is_queued_for_deletion_once(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    await database.ledger.commit(HIDDEN, SECOND_CALL, NameCall("call-2", "resp-2"))

    await database.ledger.commit(DELETE)

    jobs = rows(database.path)["delete_job"].values()
    assert [(job["adapter"], job["handle"], job["due_at"], job["attempts"]) for job in jobs] == [
        ("echo", "resp-1", 5000, 0),
        ("echo", "resp-2", 5000, 0),
    ]


async def test_a_history_of_the_gateway_has_nothing_to_delete_at_a_backend(database: Recorded) -> None:
    own = replace(THREAD, owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE)
    await database.ledger.commit(replace(ACCEPT, thread=own), PREPARE, replace(COMPLETE, handle_out=None))
    await database.ledger.commit(DELETE)
    assert rows(database.path)["delete_job"] == {}


@pytest.mark.parametrize("other", [replace(DELETE, caller=Caller("eve", "acme")), replace(DELETE, context="context-9")])
async def test_a_context_that_is_not_the_callers_stays(database: Recorded, other: DeleteContext) -> None:
    await database.ledger.commit(*FIRST_TURN)
    before = rows(database.path)
    with pytest.raises(Conflict):
        await database.ledger.commit(other)
    assert rows(database.path) == before


async def test_a_long_conversation_cannot_be_read_at_once_and_goes_piece_by_piece(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    for number in range(2, TURNS_AT_ONCE + 10):
        again = replace(FOLLOW_UP, task=f"task-{number}", turn=f"turn-{number}", new_task=True, event=None)
        await database.ledger.commit(again)
    await database.ledger.commit(DELETE)
    assert len(rows(database.path)["turn"]) == 9
    assert await database.ledger.task(ADA, "echo", f"task-{TURNS_AT_ONCE + 9}") is None
    [context] = await database.ledger.aged_contexts(0, "", 10)
    assert (context.idle, context.purge_pending) == (False, True)
    while await database.ledger.purge_pending("context-1"):
        await database.ledger.commit(PurgeContext("context-1", 5000))
    left = rows(database.path)
    assert {table: left[table] for table in PURGED} == {table: {} for table in PURGED}


async def test_the_handles_of_an_epoch_at_the_backend_are_queued_for_deletion_too(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    await database.ledger.commit(
        BeginEpoch("thread-1", 2, "thread-closed", StorageOwner.GATEWAY, HandleKind.NONE, None), DELETE
    )
    assert [job["handle"] for job in rows(database.path)["delete_job"].values()] == ["resp-1"]


async def test_a_handle_that_was_adopted_is_not_ours_to_delete(database: Recorded) -> None:
    await database.ledger.commit(Adopt(ADA, "public-1", replace(THREAD, handle="resp-0"), 500))
    await database.ledger.commit(DELETE)
    assert rows(database.path)["delete_job"] == {}


async def test_what_comes_too_late_is_not_stored(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT, PREPARE)
    await database.ledger.commit(DELETE)
    before = rows(database.path)
    for late in (APPEND, COMPLETE, FINISH, FOLLOW_UP, PREPARE, NameCall("call-1", "resp-1"), DELETE):
        with pytest.raises(Conflict):
            await database.ledger.commit(late)
    assert rows(database.path) == before


async def test_the_tasks_that_wait_for_their_caller_are_found(database: Recorded) -> None:
    asks = replace(FINISH, state=TaskState.INPUT_REQUIRED)
    await database.ledger.commit(*FIRST_TURN[:-1], asks)
    assert [task.id for task in await database.ledger.waiting_tasks("context-1")] == ["task-1"]
    await database.ledger.commit(replace(FOLLOW_UP, event=None))
    assert await database.ledger.waiting_tasks("context-1") == ()
