"""The causes of failures of the database, in a word."""

import sqlite3
from pathlib import Path

import pytest

from storage.errors import trouble


def failure(path: Path, *statements: str) -> sqlite3.Error:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        with pytest.raises(sqlite3.Error) as raised:  # noqa: PT012
            for statement in statements:
                connection.execute(statement)
        return raised.value
    finally:
        connection.close()


def test_a_file_that_may_not_grow_is_full(tmp_path: Path) -> None:
    error = failure(
        tmp_path / "a.db", "PRAGMA max_page_count = 2", "CREATE TABLE a (b)", "INSERT INTO a VALUES (zeroblob(99999))"
    )
    assert trouble(error) == "full"


def test_a_database_that_another_writes_is_locked(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert trouble(failure(tmp_path / "a.db", "BEGIN IMMEDIATE")) == "locked"
    other.close()


def test_one_that_may_only_be_read_is_read_only(tmp_path: Path) -> None:
    assert trouble(failure(tmp_path / "a.db", "PRAGMA query_only = 1", "CREATE TABLE a (b)")) == "read-only"


def test_what_has_no_word_is_unavailable(tmp_path: Path) -> None:
    assert trouble(failure(tmp_path / "a.db", "SELECT nonsense")) == "unavailable"
    assert trouble(sqlite3.ProgrammingError("closed")) == "unavailable"
