"""Writes `storage/compiled.py` and `storage/postgres/compiled.py`: the SQL of every statement, query and table as text, in each
dialect. Law: run after each change of tables, migrations, statements or queries (`python -m storage.sql.compile`); a test
compares.

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

from sqlalchemy import CTE, Dialect, FromClause, Join, Select, Subquery
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ClauseElement

import storage.sql
from storage.connection import OLDEST_USER
from storage.schema import postgres_tables
from storage.schema.migrate import migrate
from storage.schema.tables import Row, push_config
from storage.sql import database, documents, tasks
from storage.sql.fragments import Write

SQLITE = sqlite.dialect(paramstyle="named")

MODULES = tuple(
    import_module(f"storage.sql.{module.name}")
    for module in iter_modules(storage.sql.__path__)
    if module.name not in {"compile", "fragments"}
)

POSTGRESQL = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]

_PARAMETER = re.compile(r"(?<!:):(\w+)")

TARGET = Path(__file__).parents[1] / "compiled.py"
POSTGRES_TARGET = Path(__file__).parents[1] / "postgres" / "compiled.py"

_HEAD = '''"""Made by `python -m storage.sql.compile`; do not edit. The SQL that the ledger runs, and the schema it expects."""
# ruff: noqa: E501
# fmt: off

from storage.statement import Query, Statement
'''

_POSTGRES_HEAD = '''"""Made by `python -m storage.sql.compile`; do not edit. `storage.compiled` in the dialect of PostgreSQL."""
# ruff: noqa: E501
# fmt: off

from storage.postgres.text import Text
'''


def _beginning(clause: FromClause) -> FromClause:
    return _beginning(clause.left) if isinstance(clause, Join) else clause


@compiles(Join, "sqlite")
def _in_order(join: Join, compiler: SQLCompiler, **options: Any) -> str:
    """Tables that are joined to a few chosen rows are read in the order in which they are written, which CROSS JOIN says to
    SQLite alone: newer versions may begin with a whole table instead, and look for each row of it among the chosen.

    Source: SQLite, "The SQLite Query Optimizer Overview", section 8.2.
    """
    if join.isouter or join.onclause is None or not isinstance(_beginning(join), Subquery | CTE):
        return str(compiler.visit_join(join, **options))  # type: ignore[no-untyped-call]
    options["asfrom"] = True
    left, right, on = (compiler.process(each, **options) for each in (join.left, join.right, join.onclause))
    return f"{left} CROSS JOIN {right} ON {on}"


def text() -> str:
    """The source of the module for SQLite."""
    return "\n".join([_HEAD, *_statements(), *_queries(), *_schema()]) + "\n"


def postgres_text() -> str:
    """The source of the module for PostgreSQL."""
    lines = [_POSTGRES_HEAD, "TEXTS: dict[str, Text] = {"]
    lines += [f"    {name!r}: Text({', '.join(map(repr, _numbered(source)))})," for name, source in _named_sources()]
    return "\n".join([*lines, "}", *_postgres_schema()]) + "\n"


def _named_sources() -> Iterator[tuple[str, Write | Select[Any]]]:
    """Of all statements and queries that run on PostgreSQL."""
    yield from sources(*MODULES)
    for on, (page, total) in _listings().items():
        yield _named("PAGE", on), page
        yield _named("TOTAL", on), total


def _numbered(source: Write | Select[Any]) -> tuple[str, tuple[str, ...]]:
    """The SQL with `$1`, and the names of its parameters by number."""
    names: dict[str, int] = {}
    text = _PARAMETER.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}", sql(source, POSTGRESQL))
    return text, tuple(names)


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


def _statements() -> Iterator[str]:
    for name, source in sources(*MODULES):
        if isinstance(source, Write):
            text = sql(source)
            in_order = _PARAMETER.sub("?", text), source.rows, tuple(_PARAMETER.findall(text))
            yield f"{name} = Statement({name!r}, {source.what!r}, {', '.join(map(repr, in_order))})"


def _queries() -> Iterator[str]:
    for name, source in sources(*MODULES):
        if not isinstance(source, Write):
            yield f"{name} = {_query(name, source)}"
    yield f"DATA_VERSION = {database.DATA_VERSION!r}"
    yield "LISTINGS: dict[tuple[bool, ...], tuple[Query, Query]] = {"
    for on, (page, total) in _listings().items():
        yield f"    {on!r}: ({_query(_named('PAGE', on), page)}, {_query(_named('TOTAL', on), total)}),"
    yield "}"
    yield '"""A page, and how many match on all pages, by (in_context, in_state, since, after)."""'
    yield "LISTINGS_WITH_TURNS: dict[tuple[bool, ...], Query] = {"
    for on, whole in _listings_with_turns().items():
        yield f"    {on!r}: {_query(_named('WHOLE', on), whole)},"
    yield "}"
    yield '"""By (in_context, in_state, since, after, history, artifacts)."""'
    exported = {table.name: tuple(column.name for column in documents.columns(table)) for table in documents.TABLES}
    yield f"EXPORTED_COLUMNS = {exported!r}"
    yield f"TABLES = {_tables()!r}"
    yield '"""The columns of each table, and those of its key, in an order in which rows can be copied."""'


def _tables() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    # An event that is added makes the deliveries due that are there already.
    ordered = sorted(Row.metadata.sorted_tables, key=lambda table: table is push_config)
    return {
        table.name: (tuple(table.columns.keys()), tuple(column.name for column in table.primary_key))
        for table in ordered
    }


def _query(name: str, source: ClauseElement) -> str:
    return f"Query({name!r}, {sql(source)!r})"


_FILTERS = ("in_context", "in_state", "since", "after")


def _listings() -> dict[tuple[bool, ...], tuple[Select[Any], Select[Any]]]:
    return {on: tasks.listing(**dict(zip(_FILTERS, on, strict=True))) for on in product((False, True), repeat=4)}


def _listings_with_turns() -> dict[tuple[bool, ...], Select[Any]]:
    names = (*_FILTERS, "history", "artifacts")
    every = product((False, True), repeat=6)
    return {on: tasks.listing_with_turns(**dict(zip(names, on, strict=True))) for on in every}


def _named(kind: str, on: tuple[bool, ...]) -> str:
    return f"{kind}_{''.join(str(int(each)) for each in on)}"


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


def _postgres_schema() -> Iterator[str]:
    yield "SCHEMA = ("
    for table in (*Row.metadata.sorted_tables, *postgres_tables.metadata.sorted_tables):
        yield f"    {_line(CreateTable(table))!r},"
        yield from (
            f"    {_line(CreateIndex(index))!r}," for index in sorted(table.indexes, key=lambda each: str(each.name))
        )
    yield from (f"    {' '.join(made.split())!r}," for made in postgres_tables.FUNCTIONS)
    yield ")"


def _line(made: CreateTable | CreateIndex) -> str:
    return " ".join(str(made.compile(dialect=POSTGRESQL)).split())


def main() -> None:
    TARGET.write_text(text())
    POSTGRES_TARGET.write_text(postgres_text())


if __name__ == "__main__":
    main()
