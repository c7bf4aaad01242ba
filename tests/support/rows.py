"""The rows of a ledger, through a connection of its own that sees what is committed and nothing else. This is how tests look at
a database and change it behind the gateway's back, whichever store it is in: with SQL that both dialects understand, in which
`?` stands for a value."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.stores import SQLITE, chosen, store_of, straight_url

Row = dict[str, Any]


class _Dialect(NamedTuple):
    """What the drivers and the two kinds of SQL do not have in common. `begin`: everything is read of one moment."""

    worded: Callable[[str], str]
    begin: str
    tables: str


_SQLITE = _Dialect(str, "BEGIN", "SELECT name FROM sqlite_master WHERE type = 'table'")
_POSTGRES = _Dialect(
    lambda sql: sql.replace("%", "%%").replace("?", "%s"),
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()",
)
_any_text = partial(str, encoding="utf-8", errors="surrogateescape")


class Rows:
    """What is true in either dialect may be True or 1."""

    def __init__(self, connection: Any, dialect: _Dialect) -> None:
        self._connection = connection
        self._dialect = dialect

    def __call__(self, sql: str, *values: object) -> list[Row]:
        """Each row by the names of its columns."""
        found = self._execute(sql, values)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def tuples(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._execute(sql, values).fetchall()
        return rows

    def change(self, sql: str, *values: object) -> int:
        """How many rows it changed."""
        changed: int = self._execute(sql, values).rowcount
        return changed

    def _execute(self, sql: str, values: tuple[object, ...]) -> Any:
        return self._connection.execute(self._dialect.worded(sql), values)

    def tables(self) -> list[str]:
        return [name for (name,) in self.tuples(self._dialect.tables)]

    @contextmanager
    def moment(self) -> Iterator[None]:
        """All that is read in the block is of one moment."""
        self._execute(self._dialect.begin, ())
        try:
            yield
        finally:
            self._execute("COMMIT", ())


@contextmanager
def reading(path: Path) -> Iterator[Rows]:
    """A database that is there. Each statement is of a moment of its own."""
    if store_of(path) == SQLITE:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as connection:
            connection.text_factory = _any_text
            yield Rows(connection, _SQLITE)
    else:
        with _postgres(path) as rows:
            yield rows


@contextmanager
def writing(path: Path) -> Iterator[Rows]:
    """The changes of the block are committed at its end, or none of them if it raises."""
    if store_of(path) == SQLITE:
        with closing(sqlite3.connect(path)) as connection, connection:
            yield Rows(connection, _SQLITE)
    else:
        with _postgres(path) as rows:
            rows.change("BEGIN")
            yield rows
            rows.change("COMMIT")


@contextmanager
def _postgres(path: Path) -> Iterator[Rows]:
    import psycopg

    with closing(psycopg.connect(straight_url(path), autocommit=True)) as connection:
        yield Rows(connection, _POSTGRES)


def query(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with reading(path) as rows:
        return rows.tuples(sql, *values)


def change(path: Path, sql: str, *values: object) -> int:
    """How many rows it changed."""
    with writing(path) as rows:
        return rows.change(sql, *values)


def refusals() -> tuple[type[Exception], ...]:
    """What a change raises that the tables do not take."""
    if chosen() == SQLITE:
        return (sqlite3.IntegrityError,)
    import psycopg

    return (psycopg.IntegrityError,)


def everything(path: Path) -> str:
    """The rows of all tables, as text."""
    with reading(path) as rows:
        return "\n".join(str(row) for table in rows.tables() for row in rows(f"SELECT * FROM {table}"))


def first_text(payload: str) -> str:
    """Of a message, as the ledger keeps it."""
    text: str = json.loads(payload)["parts"][0]["text"]
    return text
