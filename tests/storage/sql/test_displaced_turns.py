"""Displaced turns: the mark, its effect at the end of the turn, and the return of the chain of handles."""

import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Part, TaskState
from gateway.ledger.calls import Complete, NewItem, Prepare
from gateway.ledger.leases import RequestCancel
from gateway.ledger.points import CommitPoint
from gateway.ledger.retention import DeleteContext
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import Displace, RevertIfDisplaced
from gateway.ports.conversation import AssistantItem, HandleKind, StorageOwner
from gateway.testing.ledger_points import ACCEPT, ADA, COMPLETE, FINISH, FOLLOW_UP, PREPARE, THREAD
from storage.sql import threads
from storage.sql.compile import sql
from tests.storage.conversation import Recorded, rows

FIRST_TURN = (ACCEPT, PREPARE, COMPLETE, replace(FINISH, events=None))
SAID = NewItem(AssistantItem((Part(text="so"),)))


def accept(number: int) -> CommitPoint:
    task = f"task-{number}"
    return replace(FOLLOW_UP, task=task, turn=f"turn-{number}", new_task=True, event=None, last_event=0)


def prepare(number: int, generation: int, handle: str | None) -> Prepare:
    return Prepare(
        "thread-1",
        generation,
        "process-1",
        9000,
        f"turn-{number}",
        f"task-{number}",
        f"call-{number}",
        0,
        0,
        handle,
        1,
        None,
    )


def complete(number: int, generation: int, handle: str | None, *sent: int) -> Complete:
    return replace(
        COMPLETE,
        generation=generation,
        turn=f"turn-{number}",
        service_call=f"call-{number}",
        handle_in=handle,
        handle_out=f"resp-{number}",
        items=(SAID,),
        tool_calls=(),
        sent=sent,
    )


def ends(number: int, status: str = "cancelled") -> Finish:
    state = {"cancelled": TaskState.CANCELED, "failed": TaskState.FAILED, "rejected": TaskState.REJECTED}
    return replace(
        FINISH,
        task=f"task-{number}",
        turn=f"turn-{number}",
        status=status,
        state=state.get(status, TaskState.COMPLETED),
        events=None,
    )


def marks(database: Recorded) -> dict[object, tuple[object, object]]:
    """By turn: whether a cancel is requested, and whether it is displaced."""
    return {row["id"]: (row["cancel_asked"], row["displaced"]) for row in rows(database.path)["turn"].values()}


async def test_what_has_not_ended_before_a_turn_is_displaced_and_nothing_else(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN, *(accept(n) for n in (2, 3, 4, 5)))
    await database.ledger.commit(Displace("thread-1", "turn-4"))
    assert marks(database) == {
        "turn-1": (0, 0),
        "turn-2": (1, 1),
        "turn-3": (1, 1),
        "turn-4": (0, 0),
        "turn-5": (0, 0),
    }
    await database.ledger.commit(Displace("thread-1", "turn-4", itself=True))
    assert marks(database)["turn-4"] == (1, 1)
    assert set(await database.ledger.cancel_requests("process-1")) == {"task-2", "task-3", "task-4"}


@pytest.mark.parametrize(("status", "stays"), [("cancelled", 1), ("failed", 1), ("completed", 0), ("rejected", 0)])
async def test_a_turn_that_is_complete_counts_whatever_was_asked(database: Recorded, status: str, stays: int) -> None:
    await database.ledger.commit(*FIRST_TURN, accept(2), accept(3), Displace("thread-1", "turn-3"))
    await database.ledger.commit(ends(2, status))
    assert marks(database)["turn-2"] == (1, stays)
    history = await database.ledger.history("thread-1", unsent_only=False)
    assert {record.turn_id: record.displaced for record in history} == {
        "turn-1": False,
        "turn-2": bool(stays),
        "turn-3": False,
    }


async def test_a_chain_goes_back_to_where_a_displaced_turn_began(database: Recorded) -> None:
    await database.ledger.commit(
        *FIRST_TURN, accept(2), accept(3), prepare(2, 2, "resp-1"), complete(2, 3, "resp-1", 4)
    )
    await database.ledger.commit(Displace("thread-1", "turn-3"))
    await database.ledger.commit(ends(2))
    assert await database.changed_by(RevertIfDisplaced("thread-1", "turn-2", 2300)) == {
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
    assert await database.changed_by(RevertIfDisplaced("thread-1", "turn-2", 2300)) == {}


async def test_nothing_of_a_turn_that_is_not_displaced_is_reverted(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN, accept(2), prepare(2, 2, "resp-1"), complete(2, 3, "resp-1", 4))
    await database.ledger.commit(RequestCancel(("turn-2",)), ends(2))
    assert await database.changed_by(RevertIfDisplaced("thread-1", "turn-2", 2300)) == {}


async def test_a_displaced_turn_without_a_completed_call_moved_nothing(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN, accept(2), accept(3), prepare(2, 2, "resp-1"))
    await database.ledger.commit(Displace("thread-1", "turn-3"), ends(2))
    assert await database.changed_by(RevertIfDisplaced("thread-1", "turn-2", 2300)) == {}


@pytest.mark.parametrize("kind", ["static", "none"])
async def test_another_kind_of_handle_is_not_reverted(database: Recorded, kind: str) -> None:
    owner = StorageOwner.BACKEND if kind == "static" else StorageOwner.GATEWAY
    thread = replace(THREAD, owner=owner, handle_kind=HandleKind(kind))
    out = "conv" if kind == "static" else None
    first = replace(complete(1, 1, None, 1), handle_out=out)
    await database.ledger.commit(replace(ACCEPT, thread=thread), replace(accept(2), thread=thread), PREPARE, first)
    await database.ledger.commit(Displace("thread-1", "turn-2"), ends(1))
    assert await database.changed_by(RevertIfDisplaced("thread-1", "turn-1", 2300)) == {}


async def test_a_thread_of_a_tombstone_does_not_change(database: Recorded) -> None:
    await database.ledger.commit(
        *FIRST_TURN, accept(2), accept(3), prepare(2, 2, "resp-1"), complete(2, 3, "resp-1", 4)
    )
    await database.ledger.commit(Displace("thread-1", "turn-3"), ends(2))
    await database.ledger.commit(DeleteContext(ADA, "context-1", 5000))
    before = rows(database.path)["thread"]
    await database.ledger.commit(RevertIfDisplaced("thread-1", "turn-2", 5100))
    assert rows(database.path)["thread"] == before


def test_only_items_since_the_chain_was_last_whole_are_examined(database: Recorded) -> None:
    """And none of a turn that is not displaced."""
    with closing(sqlite3.connect(database.path)) as connection:
        values = {"thread": "t", "turn": "u"}
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql(threads.MARK_UNSENT_DISPLACED)}", values).fetchall()
    assert any("history_item" in step and "thread=? AND position>?" in step for *_, step in plan)
