"""The rows that a commit has changed, and a ledger with its file."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from storage.ledger import SqliteLedger, open_ledger
from storage.settings import SqliteSettings

Rows = dict[str, dict[tuple[object, ...], dict[str, object]]]


def rows(path: Path) -> Rows:
    """Every row by table and key, through a connection of its own."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: _keyed(database, name) for name in names if name != "alembic_version"}


def _keyed(database: sqlite3.Connection, name: str) -> dict[tuple[object, ...], dict[str, object]]:
    columns = [(row["name"], row["pk"]) for row in database.execute(f"PRAGMA table_info({name})")]
    key = [column for column, place in sorted(columns, key=lambda pair: pair[1]) if place]
    return {tuple(row[column] for column in key): dict(row) for row in database.execute(f"SELECT * FROM {name}")}


def changes(before: Rows, after: Rows) -> dict[str, dict[Any, dict[str, object]]]:
    """By table and key (bare where it is one column): a new row without its NULLs, or the changed columns of an old one."""
    found: dict[str, dict[Any, dict[str, object]]] = {}
    for name, table in after.items():
        assert before[name].keys() <= table.keys()
        for key, row in table.items():
            old = before[name].get(key)
            other = {
                column: value
                for column, value in row.items()
                if (value is not None if old is None else old[column] != value)
            }
            if other:
                found.setdefault(name, {})[key[0] if len(key) == 1 else key] = other
    return found


class Recorded:
    """A ledger and its file: commits, and returns what a commit changed."""

    def __init__(self, ledger: SqliteLedger, path: Path) -> None:
        self.ledger = ledger
        self.path = path

    async def changed_by(self, *points: Any) -> dict[str, dict[Any, dict[str, object]]]:
        before = rows(self.path)
        await self.ledger.commit(*points)
        return changes(before, rows(self.path))


@asynccontextmanager
async def recorded(path: Path, busy_timeout_ms: int = 5000) -> AsyncGenerator[Recorded, None]:
    async with open_ledger(SqliteSettings(url=f"sqlite:///{path}"), True, busy_timeout_ms=busy_timeout_ms) as ledger:
        assert isinstance(ledger, SqliteLedger)
        yield Recorded(ledger, path)
