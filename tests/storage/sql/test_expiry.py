"""Expiry: contexts are purged piece by piece, handles are queued for deletion at their backend; no table is scanned."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.ledger.calls import NameCall
from gateway.ledger.errors import Conflict
from gateway.ledger.retention import ExpireContext, ExpireTasks, MoveDeletion, PurgeContext
from gateway.ledger.threads import DeleteOrphan
from gateway.testing.ledger_points import ACCEPT, ADA, APPEND, COMPLETE, FINISH, FOLLOW_UP, PREPARE
from storage.sql import documents, retention
from storage.sql.compile import texts
from storage.write.units import TURNS_AT_ONCE
from tests.storage.conversation import Recorded, recorded, rows

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


# --- tasks over their time ---


async def test_the_events_of_a_task_that_has_ended_go_and_nothing_else(database: Recorded) -> None:
    await database.ledger.commit(*FIRST_TURN)
    before = rows(database.path)
    await database.ledger.commit(ExpireTasks(("task-1",), records=False))
    assert rows(database.path) == before | {"event": {}}


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


# --- the outbox ---


ORPHAN = DeleteOrphan("thread-1", "echo", "resp-1", 1300)


async def test_a_job_that_was_given_up_stays_and_is_not_found(database: Recorded) -> None:
    await database.ledger.commit(ORPHAN)
    await database.ledger.commit(MoveDeletion("thread-1 resp-1", ORPHAN.now, None, 8))
    assert await database.ledger.deletions(10) == ()
    assert rows(database.path)["delete_job"]["thread-1 resp-1",]["due_at"] is None
