"""Expiry: contexts are purged piece by piece, handles are queued for deletion at their backend; no table is scanned."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.ledger.calls import NameCall
from gateway.ledger.errors import Conflict
from gateway.ledger.retention import Deletion, EndDeletion, ExpireContext, ExpireTasks, MoveDeletion, PurgeContext
from gateway.ledger.tasks import TaskOwner
from gateway.ledger.threads import DeleteOrphan
from storage.sql import documents, retention
from storage.sql.compile import texts
from storage.write.units import TURNS_AT_ONCE
from tests.storage.conversation import (
    ACCEPT,
    ADA,
    APPEND,
    COMPLETE,
    FINISH,
    FOLLOW_UP,
    PREPARE,
    Recorded,
    recorded,
    rows,
)

SQL = texts(retention, documents)
FIRST_TURN = (ACCEPT, PREPARE, NameCall("call-1", "resp-1"), COMPLETE, APPEND, FINISH)
PURGED = ("task", "turn", "input", "service_call", "tool_call", "history_item", "event")
EXPIRE = ExpireContext("context-1", 5000, 9000)


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    async with recorded(tmp_path / "empty.db"):
        with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
            yield connection


@pytest.mark.parametrize("name", SQL)
def test_no_table_is_read_from_end_to_end(connection: sqlite3.Connection, name: str) -> None:
    sql = SQL[name]
    plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql))).fetchall()
    assert [step for *_, step in plan if step.startswith("SCAN")] == []


# --- an expired context ---


async def test_a_context_that_was_used_meanwhile_does_not_expire(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    before = rows(database.path)
    with pytest.raises(Conflict):
        await database.ledger.commit(replace(EXPIRE, idle_before=1000))
    assert rows(database.path) == before


async def test_an_expired_context_is_a_tombstone_at_once_and_its_tasks_are_gone(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    await database.ledger.commit(EXPIRE)
    after = rows(database.path)
    assert after["context"]["context-1",]["state"] == "expired"
    assert (after["thread"]["thread-1",]["state"], after["thread"]["thread-1",]["handle"]) == ("expired", None)
    assert await database.ledger.task(ADA, "echo", "task-1") is None
    with pytest.raises(Conflict):
        await database.ledger.commit(FOLLOW_UP)


async def test_what_it_held_goes_in_pieces_and_each_of_its_handles_becomes_a_job(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    turns = TURNS_AT_ONCE + 5
    for number in range(2, turns + 1):
        again = replace(FOLLOW_UP, task=f"task-{number}", turn=f"turn-{number}", new_task=True, event=None)
        await database.ledger.commit(again)
    await database.ledger.commit(EXPIRE)
    pieces = 0
    while await database.ledger.purge_pending("context-1"):
        before = len(rows(database.path)["turn"])
        await database.ledger.commit(PurgeContext("context-1", 9100))
        assert before - len(rows(database.path)["turn"]) <= TURNS_AT_ONCE
        pieces += 1
    assert pieces >= 2
    left = rows(database.path)
    assert {table: left[table] for table in PURGED} == {table: {} for table in PURGED}
    assert [job["handle"] for job in left["delete_job"].values()] == ["resp-1"]


async def test_aged_contexts_are_listed_with_their_pending_work(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)

    async def aged(idle_before: int) -> list[tuple[bool, bool]]:
        return [(found.idle, found.purge_pending) for found in await database.ledger.aged_contexts(idle_before, "", 10)]

    assert (await aged(1000), await aged(1001)) == ([(False, False)], [(True, False)])
    await database.ledger.commit(EXPIRE)
    assert await aged(1001) == [(False, True)]
    await database.ledger.commit(PurgeContext("context-1", 9100))
    assert await aged(1001) == [(False, False)]
    assert await database.ledger.aged_contexts(1001, "context-1", 10) == ()


# --- tasks over their time ---


async def test_the_events_of_a_task_that_has_ended_go_and_nothing_else(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    before = rows(database.path)
    await database.ledger.commit(ExpireTasks(("task-1",), records=False))
    assert rows(database.path) == before | {"event": {}}


@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, None])
async def test_a_task_that_has_not_ended_keeps_its_events_and_its_record(
    database: Recorded, state: TaskState | None
) -> None:
    await database.ledger.commit(*FIRST_TURN[:-1], *([replace(FINISH, state=state)] if state else []))
    before = rows(database.path)
    assert await database.ledger.ended_tasks(TaskOwner("acme", "ada", "echo"), 9999, (-1, ""), 10) == ()
    await database.ledger.commit(ExpireTasks(("task-1",), records=False))
    assert rows(database.path) == before


async def test_an_expired_task_is_not_returned_and_its_conversation_stays(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    before = rows(database.path)
    history = await database.ledger.history("thread-1", unsent_only=False)
    await database.ledger.commit(ExpireTasks(("task-1",), records=True))
    after = rows(database.path)
    assert (after["event"], after["task"]["task-1",]["visible"]) == ({}, 0)
    assert {after["turn"]["turn-1",][name] for name in ("messages", "artifacts")} == {"[]"}
    assert after["input"]["turn-1", 0] == before["input"]["turn-1", 0] | {"key": None, "key_kind": None}
    assert await database.ledger.history("thread-1", unsent_only=False) == history
    assert {name: after[name] for name in ("service_call", "thread")} == {
        name: before[name] for name in ("service_call", "thread")
    }


async def test_tasks_are_found_by_their_owners_the_oldest_first(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    owner = await database.ledger.next_owner(TaskOwner())
    assert owner == TaskOwner("acme", "ada", "echo")
    assert await database.ledger.next_owner(owner) is None
    assert await database.ledger.ended_tasks(owner, 1300, (-1, ""), 10) == ()
    [task] = await database.ledger.ended_tasks(owner, 1301, (-1, ""), 10)
    assert (task.id, task.status_at, task.logged) == ("task-1", 1300, True)
    assert await database.ledger.ended_tasks(owner, 1301, (1300, "task-1"), 10) == ()


# --- the outbox ---


ORPHAN = DeleteOrphan("thread-1", "echo", "resp-1", 1300)


async def test_of_two_that_want_a_job_one_has_it(database: Recorded) -> None:
    await database.ledger.commit(ORPHAN)
    [job] = await database.ledger.deletions(10)
    assert job == Deletion("thread-1 resp-1", "echo", "resp-1", ORPHAN.now, 0)
    await database.ledger.commit(MoveDeletion(job.job, job.due_at, 9000, 1))
    for late in (MoveDeletion(job.job, job.due_at, 9000, 1), EndDeletion(job.job, job.due_at)):
        with pytest.raises(Conflict):
            await database.ledger.commit(late)
    assert await database.ledger.deletions(10) == (replace(job, due_at=9000, attempts=1),)
    await database.ledger.commit(EndDeletion(job.job, 9000))
    assert rows(database.path)["delete_job"] == {}


async def test_a_job_that_was_given_up_stays_and_is_not_found(database: Recorded) -> None:
    await database.ledger.commit(ORPHAN)
    await database.ledger.commit(MoveDeletion("thread-1 resp-1", ORPHAN.now, None, 8))
    assert await database.ledger.deletions(10) == ()
    assert rows(database.path)["delete_job"]["thread-1 resp-1",]["due_at"] is None
