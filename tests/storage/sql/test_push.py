"""The statements of push configurations go by an index."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from storage.schema.open import prepare
from storage.sql import push
from storage.sql.compile import texts

SQL = texts(push)


@pytest.mark.parametrize("name", SQL)
def test_nothing_reads_a_table_from_end_to_end(tmp_path: Path, name: str) -> None:
    prepare(tmp_path / "empty.db", 5000, auto_migrate=True)
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        sql = SQL[name]
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(re.findall(r":(\w+)", sql))).fetchall()
    scans = [step for *_, step in plan if step.startswith("SCAN")]
    assert [step for step in scans if "VIRTUAL TABLE" not in step and "CONSTANT ROW" not in step] == []
