"""Answers to a waiting turn: their rows, and the index through which they are found."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from msgspec.structs import replace
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from gateway.a2a.model import TaskState
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.turns import Decide, GivenAnswer, Suspend, Verdict
from gateway.ports.conversation import CallItem, UserItem
from gateway.testing.ledger_points import ACCEPT, ADA, COMPLETE, PREPARE, says
from storage.schema.tables import Row
from storage.sql import waiting
from storage.sql.compile import texts
from tests.storage.conversation import Recorded

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
