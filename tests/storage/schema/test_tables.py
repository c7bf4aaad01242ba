"""The constraints hold for every writer, not only for the commit points."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.testing.ledger_points import ACCEPT, COMPLETE, PREPARE, PUT
from storage.schema.tables import Row
from tests.storage.conversation import recorded

FORBIDDEN = {
    "a storage owner that there is not": "UPDATE thread SET storage_owner = 'both'",
    "a handle kind that the owner does not have": "UPDATE thread SET handle_kind = 'none'",
    "a lease without a holder": "UPDATE thread SET lease_holder = NULL",
    "a thread state that there is not": "UPDATE thread SET state = 'asleep'",
    "a context state that there is not": "UPDATE context SET state = 'lost'",
    "a task state that there is not": "UPDATE task SET state = 'working'",
    "a turn that ended without an end": "UPDATE turn SET status = 'completed'",
    "an end of a turn that runs": "UPDATE turn SET ended_at = 1, messages = '[]', artifacts = '[]'",
    "an end without a record": "UPDATE turn SET status = 'failed', ended_at = 1",
    "a confirmed handle of a call that failed": "UPDATE service_call SET status = 'failed'",
    "a key without its kind": "UPDATE input SET key_kind = NULL",
    "an outcome of a call that runs": "UPDATE tool_call SET status = 'running'",
    "a settled call without an outcome": "UPDATE tool_call SET outcome = NULL",
    "an approval used before it was given": "UPDATE tool_call SET approval_consumed_at = 1",
    "an item with neither payload nor message": "UPDATE history_item SET payload = NULL",
    "events that end before they begin": "UPDATE event SET first = last + 1",
    "a number that is a text": "UPDATE task SET status_at = 'now'",
    "a task without its context": "UPDATE task SET context = 'nowhere'",
    "an item without its thread": "UPDATE history_item SET thread = 'nowhere'",
    "a push state that there is not": "UPDATE push_config SET state = 'asleep'",
    "a delivery that is due and given up": "UPDATE push_config SET state = 'stopped', due_at = 0",
    "a thread deleted under its turns": "DELETE FROM thread",
}


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    async with recorded(tmp_path / "ledger.db") as database:
        await database.ledger.commit(ACCEPT, PREPARE, COMPLETE, PUT)
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


@pytest.mark.parametrize("name", FORBIDDEN)
def test_the_database_itself_refuses(connection: sqlite3.Connection, name: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(FORBIDDEN[name])


def test_a_thread_may_follow_one_that_is_closed(connection: sqlite3.Connection) -> None:
    again = (
        "INSERT INTO thread (id, context, agent, epoch, storage_owner, handle_kind, generation, state)"
        " SELECT 'thread-2', context, agent, 2, 'gateway', 'none', 0, 'open' FROM thread"
    )
    with pytest.raises(sqlite3.IntegrityError):
        connection.execute(again)
    connection.execute("UPDATE thread SET state = 'closed'")
    connection.execute(again)


def test_every_table_is_strict_and_no_text_has_a_length() -> None:
    for table in Row.metadata.tables.values():
        assert table.dialect_options["sqlite"]["strict"] is True
        assert {getattr(column.type, "length", None) for column in table.columns} == {None}
