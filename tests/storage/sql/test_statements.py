"""The statements are valid, need nothing but named parameters, and find their rows through an index."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from storage.schema.tables import Row
from storage.sql import accept, calls, database, leases, threads, turns
from storage.sql.compile import sources, sql
from storage.sql.fragments import Write

STATEMENTS = {
    name: sql(source)
    for name, source in sources(accept, calls, turns, leases, threads, database)
    if isinstance(source, Write)
}


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    """The tables without a row."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in Row.metadata.sorted_tables:
            connection.execute(str(CreateTable(table).compile(dialect=sqlite.dialect())))
            for index in table.indexes:
                connection.execute(str(CreateIndex(index).compile(dialect=sqlite.dialect())))
        yield connection


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_reads_no_table_from_end_to_end(empty: sqlite3.Connection, name: str) -> None:
    sql = STATEMENTS[name]
    plan = empty.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql))).fetchall()
    scans = [step for *_, step in plan if step.startswith("SCAN")]
    # JSON that came as a parameter, and a row of parameters: neither is a table.
    assert [step for step in scans if "VIRTUAL TABLE" not in step and step != "SCAN CONSTANT ROW"] == []


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_binds_only_its_own_parameters(name: str) -> None:
    assert not re.search(r":\w+_\d|\?|RETURNING|POSTCOMPILE", STATEMENTS[name])


def test_statements_say_what_they_do() -> None:
    statements = [
        source for _, source in sources(accept, calls, turns, leases, threads, database) if isinstance(source, Write)
    ]
    assert len({statement.what for statement in statements}) == len(statements)
