"""The reads for operators can find their rows through an index, or among a number of the latest ones. Whether the planner
does so depends on how large the tables are: those of a test would be read as a whole all the same, so that way costs too much
here."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg

from storage.postgres.compiled import TEXTS
from storage.postgres.ledger import open_ledger
from storage.postgres.settings import PostgresSettings
from storage.schema.tables import Row
from tests.storage.many import LONG, fill

_LATEST = "\U0010ffff"
_END = 2**62
_GIVEN: dict[str, str | int] = {
    "tenant": "acme",
    **dict.fromkeys(("agent", "principal", "standing", "after_job"), ""),
    **dict.fromkeys(("before_task", "before_id"), _LATEST),
    **dict.fromkeys(("until", "created_at", "ended_at", "round", "attempt", "number"), _END),
    **dict.fromkeys(("since", "after", "after_at", "now"), 0),
    "before": _LATEST,
    "text": "message 7:",
    "wanted": "resp-0-00007",
    "context": f"context-{LONG}",
    "thread": f"thread-{LONG}",
    "task": f"task-{LONG}",
    "turn": f"turn-{LONG}",
    "contexts": json.dumps([f"context-0-{number:05}" for number in range(51)]),
    "turns": json.dumps([f"turn-{LONG}"]),
    "ids": json.dumps([f"tool-{number:05}" for number in range(300)]),
    "numbers": "[0]",
    "first": 1,
    "behind": 2,
    "start": 1,
    "size": 200,
    "chunk": 256,
    "limit": 51,
}
_FEW = frozenset({"api_key", "duty", "process", "push_config", "delete_job", "withdrawal", "turn_note"})
"""Tables of which this database has few rows, so that any plan reads them whole."""

_LARGE = frozenset(Row.metadata.tables) - _FEW


async def test_no_large_table_has_to_be_read_from_end_to_end(database_url: str) -> None:
    async with open_ledger(PostgresSettings(url=database_url), True) as ledger:
        await fill(ledger, contexts=1000, events=300)
    with psycopg.connect(database_url) as connection:
        connection.execute("ANALYZE")
        found = {
            name: scanned
            for name, text in TEXTS.items()
            if name.startswith("ADMIN_")
            if (scanned := [*_scanned(_plan(connection, text.sql, text.names))])
        }
    assert found == {}, str(found)


def _plan(connection: psycopg.Connection, sql: str, names: tuple[str, ...]) -> dict[str, Any]:
    """The plan that the server makes for these values."""
    connection.execute("SET plan_cache_mode = force_custom_plan")
    connection.execute("SET enable_seqscan = off")
    connection.execute(f"PREPARE admin AS {sql}".encode())
    values = ", ".join([_literal(_given(name, sql)) for name in names])
    [(plan,)] = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE admin({values})".encode()).fetchall()
    connection.execute("DEALLOCATE admin")
    found: dict[str, Any] = plan[0]["Plan"]
    return found


def _given(name: str, sql: str) -> str | int:
    # The number of a turn in some queries, an id in others.
    return _END if name == "before" and "turn.number < " in sql else _GIVEN[name]


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _scanned(plan: dict[str, Any]) -> Iterator[str]:
    if plan["Node Type"] == "Seq Scan" and plan.get("Relation Name") in _LARGE:
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from _scanned(part)
