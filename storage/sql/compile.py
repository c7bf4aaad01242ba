"""Writes `storage/compiled.py`: the SQL of every statement, query and table as text. Law: run it after each change of
tables, migrations, statements or queries (`python -m storage.sql.compile`); a test compares.

SQLAlchemy compiles it here, once and for all: importing SQLAlchemy, SQLModel and Alembic to do it at every start would
cost more than half of the start-up time and a third of the memory of the whole gateway.
"""

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType

from storage.connection import OLDEST_USER
from storage.schema.migrate import migrate
from storage.sql import accept, api_keys, calls, documents, push, reads, recovery, retention, threads, turns, waiting
from storage.statement import Statement

_PARAMETER = re.compile(r":(\w+)")

TARGET = Path(__file__).parents[1] / "compiled.py"

_HEAD = '''"""Made by `python -m storage.sql.compile`; do not edit. The SQL that the ledger runs, and the schema it expects."""
# ruff: noqa: E501, S105
# fmt: off

from storage.statement import Listing, Statement
'''


def text() -> str:
    """The module's source."""
    lines = [_HEAD, *_statements(), *_queries(), *_schema()]
    return "\n".join(lines) + "\n"


def _written_in(*modules: ModuleType) -> Iterator[tuple[str, object]]:
    for module in modules:
        yield from vars(module).items()


def _statements() -> Iterator[str]:
    for name, value in _written_in(accept, calls, turns, threads, retention, documents, api_keys, push, waiting):
        if isinstance(value, Statement):
            sql, names = _in_order(_flat(value.sql))
            yield f"{name} = Statement({value.what!r}, {sql!r}, {value.rows!r}, {names!r})"


def _queries() -> Iterator[str]:
    for name, value in _written_in(reads, recovery, retention, documents, api_keys, push, waiting):
        if isinstance(value, str) and name.isupper() and value.startswith(("SELECT", "WITH", "PRAGMA")):
            yield f"{name} = {_flat(value)!r}"
    yield f"TURNS = {{{', '.join(f'{a!r}: {_flat(reads.turns(artifacts=a))!r}' for a in (False, True))}}}"
    yield "LISTINGS = {"
    for on in product((False, True), repeat=4):
        listing = reads.listing(**dict(zip(("in_context", "in_state", "since", "after"), on, strict=True)))
        yield f"    {on!r}: Listing({_flat(listing.page)!r}, {_flat(listing.total)!r}),"
    yield "}"
    yield '"""By (in_context, in_state, since, after)."""'


def _schema() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        head = migrate(path, 5000, auto_migrate=True)
        connection = sqlite3.connect(path)
        [oldest] = connection.execute(OLDEST_USER).fetchone()
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        connection.close()
    yield "SCHEMA = ("
    yield from (f"    {_flat(sql)!r}," for (sql,) in made)
    yield ")"
    yield f"VERSION = {head!r}"
    yield f"OLDEST = {oldest!r}"


def _in_order(sql: str) -> tuple[str, tuple[str, ...]]:
    """The same with a question mark for each parameter, and their names."""
    return _PARAMETER.sub("?", sql), tuple(_PARAMETER.findall(sql))


def _flat(sql: str) -> str:
    return " ".join(sql.split())


def main() -> None:
    TARGET.write_text(text())


if __name__ == "__main__":
    main()
