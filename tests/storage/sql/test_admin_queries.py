"""The reads for operators find their rows through an index, or among a number of the latest ones, whatever the database
holds."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from storage.schema.open import prepare
from storage.schema.tables import Row
from storage.sql import admin_contexts, admin_places, admin_timelines, admin_upkeep
from storage.sql.compile import texts
from tests.storage.sql.libraries import OPENING
from tests.storage.sql.test_queries import plan

QUERIES = texts(admin_contexts, admin_places, admin_timelines, admin_upkeep)
TABLES = frozenset(Row.metadata.tables)
# What is open or cannot continue is walked in its own index; keys and duties are few.
_OPEN = ["SCAN turn USING INDEX ix_turn_open"]
_BROKEN = ["SCAN thread USING INDEX ix_thread_broken"]
_WAITING = ["SCAN task USING INDEX ix_task_waiting"]
WALKED = {
    "ADMIN_CONTEXTS_OPEN": _OPEN,
    "ADMIN_CONTEXTS_BROKEN": _BROKEN,
    "ADMIN_CONTEXTS_WAITING": _WAITING,
    "ADMIN_OPEN_COUNTS": _OPEN,
    "ADMIN_QUESTION_COUNTS": _WAITING,
    "ADMIN_OPEN_TURNS": _OPEN,
    "ADMIN_OPEN_TOOLS": _OPEN,
    "ADMIN_BROKEN": _BROKEN,
    "ADMIN_PLACE_KEY": ["SCAN api_key"],
    "ADMIN_DUTIES": ["SCAN duty USING INDEX sqlite_autoindex_duty_1"],
}


@pytest.fixture(scope="module", params=OPENING)
def connection(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "ledger.db"
    path.touch()
    prepare(path, 5000, auto_migrate=True)
    with closing(OPENING[request.param](path)) as connection:
        yield connection


@pytest.mark.parametrize("name", QUERIES)
def test_a_read_for_operators_reads_no_table_from_end_to_end(connection: sqlite3.Connection, name: str) -> None:
    steps = plan(connection, QUERIES[name])
    walked = [step for step in steps if step.startswith("SCAN") and step.split()[1] in TABLES]
    assert walked == WALKED.get(name, [])
    assert [step for step in steps if "AUTOMATIC" in step] == []


@pytest.mark.parametrize("name", ["ADMIN_CONTEXTS", "ADMIN_CONTEXTS_SAYING", "ADMIN_PLACE_HANDLE", "ADMIN_TOOL_TIMES"])
def test_a_search_begins_with_the_latest_rows(connection: sqlite3.Connection, name: str) -> None:
    assert plan(connection, QUERIES[name])[1:3] == [
        "SEARCH turn USING COVERING INDEX sqlite_autoindex_turn_1 (id<?)",
        "SCAN recent",
    ]


def test_turns_that_failed_have_an_index_of_their_own(connection: sqlite3.Connection) -> None:
    assert "SEARCH turn USING INDEX ix_turn_failed (ended_at>?)" in plan(connection, QUERIES["ADMIN_FAILED_LATELY"])


def test_stuck_deliveries_are_found_without_reading_those_that_have_nothing_to_deliver(
    connection: sqlite3.Connection,
) -> None:
    steps = plan(connection, QUERIES["ADMIN_STUCK_RECEIVERS"])
    # Newer versions of SQLite read what is stuck once for the ranks, and once more, in the same way, to count it.
    assert list(dict.fromkeys(step for step in steps if step.startswith("SEARCH push_config"))) == [
        "SEARCH push_config USING INDEX ix_push_config_due (due_at>?)",
        "SEARCH push_config USING INDEX ix_push_config_state (state=?)",
        "SEARCH push_config USING INDEX sqlite_autoindex_push_config_1 (task=? AND id=?)",
    ]
    assert "SEARCH last_of_task USING COVERING INDEX sqlite_autoindex_event_1 (task=? AND last>?)" in steps
