"""Answers to a waiting turn: stored once, for the question and its caller only; and found through an index."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from gateway.a2a.model import TaskState
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.errors import Conflict
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.tasks import TaskOwner
from gateway.ledger.threads import Caller
from gateway.ledger.turns import Decide, GivenAnswer, Suspend, Verdict
from gateway.ports.conversation import CallItem, UserItem
from storage.schema.tables import Row
from storage.sql import waiting
from storage.sql.compile import texts
from tests.storage.conversation import ACCEPT, ADA, COMPLETE, PREPARE, Recorded, says

SQL = texts(waiting)

GATED = NewToolCall(
    "tool-1",
    0,
    "fc-1",
    "pay",
    "{}",
    "gateway",
    ToolCallStatus.PENDING_APPROVAL,
    None,
    asked=True,
    digest="d",
    expires_at=5000,
)
ASK = Suspend("task-1", "turn-1", "thread-1", TaskState.INPUT_REQUIRED, says("may it?"), None, 1300)
ANSWER = GivenAnswer(says("yes"), 1, "digest-2", None, 3, (UserItem(says("and hurry")),))
DECIDE = Decide(
    caller=ADA,
    agent="echo",
    context="context-1",
    thread="thread-1",
    generation=2,
    task="task-1",
    turn="turn-1",
    answer=ANSWER,
    verdicts=(Verdict("tool-1", "d", "approved", "ada"),),
    question=None,
    resumes=True,
    now=2000,
)


@pytest.fixture
async def waits(database: Recorded) -> Recorded:
    """A turn that waits for a decision on one call."""
    complete = replace(COMPLETE, items=(NewItem(CallItem("fc-1", "pay", "{}"), None, "tool-1"),), tool_calls=(GATED,))
    await database.ledger.commit(ACCEPT, PREPARE)
    await database.ledger.commit(complete, ASK)
    return database


async def test_a_decision_is_stored_with_its_message_and_further_items(waits: Recorded) -> None:
    changed = await waits.changed_by(DECIDE)
    assert changed["tool_call"] == {
        "tool-1": {"status": "approved", "approval_decision": "approved", "approval_by": "ada", "approval_at": 2000}
    }
    assert changed["input"]["turn-1", 1]["event"] == 3
    assert changed["history_item"]["thread-1", 3]["kind"] == "user"
    assert changed["task"]["task-1"] == {"state": "TASK_STATE_WORKING", "status_at": 2000, "status_message": None}
    assert changed["context"] == {"context-1": {"last_used_at": 2000}}
    assert changed.keys() == {"tool_call", "input", "history_item", "task", "context"}


async def test_a_rejection_is_no_permission_to_run(waits: Recorded) -> None:
    verdict = Verdict("tool-1", "d", "rejected", "ada")
    changed = await waits.changed_by(replace(DECIDE, answer=None, verdicts=(verdict,), resumes=False))
    assert changed == {
        "tool_call": {"tool-1": {"approval_decision": "rejected", "approval_by": "ada", "approval_at": 2000}}
    }


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
        {"answer": replace(ANSWER, ordinal=0)},
    ],
    ids=str,
)
async def test_a_decision_that_is_not_for_this_call_stores_nothing(waits: Recorded, changed: dict[str, Any]) -> None:
    with pytest.raises(Conflict):
        await waits.ledger.commit(replace(DECIDE, **changed))
    found = await waits.ledger.waiting_turn("task-1")
    assert found is not None
    assert (found.inputs, found.calls[0].call.status, found.calls[0].decision) == (1, "pending_approval", None)


async def test_a_call_is_decided_once(waits: Recorded) -> None:
    await waits.ledger.commit(DECIDE)
    with pytest.raises(Conflict):
        await waits.ledger.commit(replace(DECIDE, answer=replace(ANSWER, ordinal=2)))


async def test_a_waiting_turn_is_read_with_what_it_asked(waits: Recorded) -> None:
    found = await waits.ledger.waiting_turn("task-1")
    assert found is not None
    assert (found.turn, found.thread, found.inputs, found.base) == ("turn-1", "thread-1", 1, None)
    [asked] = found.calls
    assert (asked.call.id, asked.digest, asked.decision, asked.expires_at, asked.outcome) == (
        "tool-1",
        "d",
        None,
        5000,
        None,
    )
    context = await waits.ledger.context(ADA, "public-1", "echo")
    assert context is not None
    assert context.waiting == "task-1"
    assert await waits.ledger.waiting_task("thread-1") == "task-1"
    assert await waits.ledger.asked_calls("task-1") == ()


async def test_messages_during_the_wait_are_read_with_their_turn(waits: Recorded) -> None:
    await waits.ledger.commit(DECIDE)
    [turn] = (await waits.ledger.turns(("task-1",), artifacts=True))["task-1"]
    assert (turn.ended, turn.answers) == (False, ((3, says("yes")),))
    [asked] = await waits.ledger.asked_calls("task-1")
    assert (asked.call.id, asked.decision) == ("tool-1", "approved")


async def test_a_turn_is_due_when_its_time_is_over_or_nothing_is_missing(waits: Recorded) -> None:
    mine = ((TaskOwner("acme", "ada", "echo"), "task-1"),)
    assert await waits.ledger.overdue_turns(4999, 4999, 10) == ()
    assert await waits.ledger.overdue_turns(5000, 0, 10) == mine
    await waits.ledger.commit(DECIDE)
    assert await waits.ledger.overdue_turns(9000, 1999, 10) == ()
    assert await waits.ledger.overdue_turns(9000, 2000, 10) == mine


async def test_a_task_without_a_waiting_turn_has_none(database: Recorded) -> None:
    await database.ledger.commit(ACCEPT)
    assert await database.ledger.waiting_turn("task-1") is None
    assert await database.ledger.waiting_task("thread-1") is None
    context = await database.ledger.context(ADA, "public-1", "echo")
    assert context is not None
    assert context.waiting is None


# --- every statement and query goes by an index


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in Row.metadata.sorted_tables:
            connection.execute(str(CreateTable(table).compile(dialect=sqlite.dialect())))
            for index in table.indexes:
                connection.execute(str(CreateIndex(index).compile(dialect=sqlite.dialect())))
        yield connection


@pytest.mark.parametrize("name", SQL)
def test_nothing_reads_a_table_from_end_to_end(empty: sqlite3.Connection, name: str) -> None:
    sql = SQL[name]
    plan = empty.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql))).fetchall()
    scans = [step for *_, step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"]
    # The index that is walked has the turns that wait, and no others.
    assert scans == (["SCAN turn USING INDEX ix_turn_waiting"] if name == "OVERDUE_TURNS" else [])
