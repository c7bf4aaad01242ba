"""Reads find their rows through an index, whatever the database holds."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from storage import compiled
from storage.sql import database, history, recovery, tasks, traces
from storage.sql.compile import texts
from tests.storage.conversation import recorded
from tests.storage.sql.libraries import OPENING

QUERIES = {
    name: query
    for name, query in texts(tasks, history, recovery, database, traces).items()
    if query.startswith("SELECT")
}
# The few turns that have not ended are walked, in their own index; the version is one row.
WALKED = {
    "UNFINISHED_TURNS": ["SCAN turn USING INDEX ix_turn_open"],
    "LATEST_EVENTS": ["SCAN asked VIRTUAL TABLE INDEX 1:"],
    "SCHEMA_VERSION": ["SCAN alembic_version"],
}


@pytest.fixture(params=OPENING)
async def connection(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[sqlite3.Connection]:
    async with recorded(tmp_path / "ledger.db"):
        with closing(OPENING[request.param](tmp_path / "ledger.db")) as connection:
            yield connection


def scans(connection: sqlite3.Connection, sql: str) -> list[str]:
    return [step for step in plan(connection, sql) if step.startswith("SCAN")]


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    values = dict.fromkeys(re.findall(r":(\w+)", sql))
    return [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_reads_no_table_from_end_to_end(connection: sqlite3.Connection, name: str) -> None:
    assert scans(connection, QUERIES[name]) == WALKED.get(name, [])


def test_turns_that_are_to_be_cancelled_are_found_without_reading_the_others(connection: sqlite3.Connection) -> None:
    assert plan(connection, compiled.CANCEL_REQUESTS.sql) == [
        "SEARCH turn USING INDEX ix_turn_cancel_asked (process=?)"
    ]


def test_unsent_items_are_found_without_reading_the_sent_ones(connection: sqlite3.Connection) -> None:
    assert (
        plan(connection, compiled.UNSENT_ITEMS.sql)[0]
        == "SEARCH history_item USING INDEX ix_history_item_unsent (thread=?)"
    )


@pytest.mark.parametrize(("in_context", "in_state", "since", "after"), [*product([False, True], repeat=4)])
def test_a_page_is_read_in_the_order_of_an_index(
    connection: sqlite3.Connection, in_context: bool, in_state: bool, since: bool, after: bool
) -> None:
    filters = in_context, in_state, since, after
    with_turns = [compiled.LISTINGS_WITH_TURNS[*filters, *asked] for asked in product([False, True], repeat=2)]
    index = "ix_task_listed_in_context" if in_context else "ix_task_listed"
    for query in (*compiled.LISTINGS[filters], *with_turns):
        steps = plan(connection, query.sql)
        # Newer versions of SQLite say of some that the index has all that is read.
        assert any(f"USING {kind} {index} " in step for step in steps for kind in ("INDEX", "COVERING INDEX"))
        assert [step for step in steps if step.startswith("SCAN") or "TEMP B-TREE" in step] == []


def test_the_end_of_a_thread_is_walked_step_by_step(connection: sqlite3.Connection) -> None:
    steps = plan(connection, compiled.RECENT_HISTORY.sql)
    assert [step for step in steps if step.startswith("SCAN")] == ["SCAN tail"]
    assert "SEARCH older USING INDEX sqlite_autoindex_history_item_1 (thread=? AND position=?)" in steps
    assert "SEARCH history_item USING INDEX sqlite_autoindex_history_item_1 (thread=? AND position>?)" in steps


def test_the_latest_calls_are_found_from_the_end(connection: sqlite3.Connection) -> None:
    steps = plan(connection, compiled.MEASURED_CALLS.sql)
    assert steps[0] == "SEARCH turn USING INDEX sqlite_autoindex_turn_2 (thread=?)"
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps
