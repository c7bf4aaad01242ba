"""The SQL that runs is the SQL that SQLAlchemy compiles from the tables, and running it needs no SQLAlchemy."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect

from storage import compiled
from storage.schema.migrate import migrate
from storage.schema.open import prepare
from storage.sql.compile import MODULES, SQLITE, TARGET, sources, sql, text
from storage.statement import Statement, Values

POSTGRESQL = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
SOURCES = [*sources(*MODULES)]


def schema(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return [" ".join(sql.split()) for (sql,) in rows]


def test_the_compiled_module_is_what_the_tables_statements_and_queries_say() -> None:
    assert TARGET.read_text() == text(), "run: python -m storage.sql.compile"


@pytest.mark.parametrize("name", [name for name, _ in SOURCES])
def test_a_source_compiles_for_both_dialects_with_the_same_parameters(name: str) -> None:
    source = dict(SOURCES)[name]
    parameters = [re.findall(r"(?<!:):(\w+)", sql(source, dialect)) for dialect in (SQLITE, POSTGRESQL)]
    assert parameters[0] == parameters[1]


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL], ids=["SQLite", "PostgreSQL"])
@pytest.mark.parametrize("name", [name for name, _ in SOURCES])
def test_no_query_joins_every_row_of_a_table_that_it_does_not_name(name: str, dialect: Dialect) -> None:
    """SQLAlchemy adds the table of a column that no FROM around a subquery has."""
    assert re.findall(r"FROM [^()]*, \w+(?: AS \w+)? WHERE", sql(dict(SOURCES)[name], dialect)) == []


def test_a_statement_takes_its_parameters_in_the_order_of_their_names() -> None:
    statements = [value for value in vars(compiled).values() if isinstance(value, Statement)]
    for statement in statements:
        assert statement.sql.count("?") == len(statement.names), statement.what
        assert ":" not in statement.sql
        values: Values = {name: f"<{name}>" for name in statement.names}
        assert statement.parameters(values) == tuple(values[name] for name in statement.names)
    assert {len(statement.names) for statement in statements} >= {0, 1, 2}


def test_an_empty_file_gets_the_schema_that_the_migrations_lead_to(tmp_path: Path) -> None:
    compiled, migrated = tmp_path / "compiled.db", tmp_path / "migrated.db"
    assert prepare(compiled, 5000, auto_migrate=True) == migrate(migrated, 5000, auto_migrate=True)
    assert schema(compiled) == schema(migrated)


def test_a_ledger_is_opened_without_importing_sqlalchemy(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from storage.ledger import open_ledger
from storage.settings import SqliteSettings
async def main():
    async with open_ledger(SqliteSettings(url="sqlite:///{tmp_path}/ledger.db"), True) as ledger:
        await ledger.ready()
asyncio.run(main())
print(sorted({{"alembic", "sqlalchemy", "sqlmodel"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
