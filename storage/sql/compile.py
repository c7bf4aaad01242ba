"""Writes `storage/compiled.py`: the SQL of every statement, query and table as text. Law: run after each change of tables,
migrations, statements or queries (`python -m storage.sql.compile`); a test compares.

Compiling at every start would import SQLAlchemy, SQLModel and Alembic: more than half of the start-up time and a third of
the memory of the whole gateway.
"""

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from sqlalchemy import Dialect, Select
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import ClauseElement

import storage.sql
from storage.connection import OLDEST_USER
from storage.schema.migrate import migrate
from storage.sql import database, documents, tasks
from storage.sql.fragments import Write

SQLITE = sqlite.dialect(paramstyle="named")

MODULES = tuple(
    import_module(f"storage.sql.{module.name}")
    for module in iter_modules(storage.sql.__path__)
    if module.name not in {"compile", "fragments"}
)

_PARAMETER = re.compile(r":(\w+)")

TARGET = Path(__file__).parents[1] / "compiled.py"

_HEAD = '''"""Made by `python -m storage.sql.compile`; do not edit. The SQL that the ledger runs, and the schema it expects."""
# ruff: noqa: E501, S105
# fmt: off

from storage.statement import Statement
'''


def text(dialect: Dialect = SQLITE) -> str:
    """The module's source."""
    lines = [_HEAD, *_statements(dialect), *_queries(dialect), *_schema()]
    return "\n".join(lines) + "\n"


def sources(*modules: ModuleType) -> Iterator[tuple[str, Write | Select[Any]]]:
    """Statements and queries, by the names of their constants."""
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, Write | Select) and not name.startswith("_"):
                yield name, value


def texts(*modules: ModuleType) -> dict[str, str]:
    """The SQL of these modules as tests read it."""
    return {name: sql(source) for name, source in sources(*modules)}


def sql(source: Write | ClauseElement, dialect: Dialect = SQLITE) -> str:
    """One line, with parameters as `:name`."""
    clause = source.clause if isinstance(source, Write) else source
    return " ".join(str(clause.compile(dialect=dialect)).split())


def _statements(dialect: Dialect) -> Iterator[str]:
    for name, source in sources(*MODULES):
        if isinstance(source, Write):
            text = sql(source, dialect)
            in_order = _PARAMETER.sub("?", text), source.rows, tuple(_PARAMETER.findall(text))
            yield f"{name} = Statement({source.what!r}, {', '.join(map(repr, in_order))})"


def _queries(dialect: Dialect) -> Iterator[str]:
    for name, source in sources(*MODULES):
        if not isinstance(source, Write):
            yield f"{name} = {sql(source, dialect)!r}"
    yield f"DATA_VERSION = {database.DATA_VERSION!r}"
    both = (False, True)
    filters = ("in_context", "in_state", "since", "after")
    yield "LISTINGS: dict[tuple[bool, ...], tuple[str, str]] = {"
    for on in product(both, repeat=4):
        page, total = tasks.listing(**dict(zip(filters, on, strict=True)))
        yield f"    {on!r}: ({sql(page, dialect)!r}, {sql(total, dialect)!r}),"
    yield "}"
    yield '"""A page, and how many match on all pages, by (in_context, in_state, since, after)."""'
    yield "LISTINGS_WITH_TURNS: dict[tuple[bool, ...], str] = {"
    for on in product(both, repeat=6):
        whole = tasks.listing_with_turns(**dict(zip((*filters, "history", "artifacts"), on, strict=True)))
        yield f"    {on!r}: {sql(whole, dialect)!r},"
    yield "}"
    yield '"""By (in_context, in_state, since, after, history, artifacts)."""'
    exported = {table.name: tuple(column.name for column in documents.columns(table)) for table in documents.TABLES}
    yield f"EXPORTED_COLUMNS = {exported!r}"


def _schema() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        head = migrate(path, 5000, auto_migrate=True)
        connection = sqlite3.connect(path)
        [oldest] = connection.execute(OLDEST_USER).fetchone()
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        connection.close()
    yield "SCHEMA = ("
    yield from (f"    {' '.join(table.split())!r}," for (table,) in made)
    yield ")"
    yield f"VERSION = {head!r}"
    yield f"OLDEST = {oldest!r}"


def main() -> None:
    TARGET.write_text(text())


if __name__ == "__main__":
    main()
