"""Lookups in the event loop, and the reader that replaces them where they could take long."""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from storage.read.inline import InlineReader
from storage.read.pool import Readers
from storage.statement import Query

NAME = Query("NAME", "SELECT name FROM things WHERE id = :id")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "things.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO things VALUES (1, 'one'), (2, CAST(x'ff' AS TEXT))")
    return path


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        yield connection


def rename(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE things SET name = ? WHERE id = 1", (name,))


def test_a_lookup_returns_the_rows(connection: sqlite3.Connection) -> None:
    finder = InlineReader(connection, slow=math.inf)
    assert finder.fetch(NAME, {"id": 1}) == [("one",)]
    assert finder.fetch(NAME, {"id": 3}) == []


def test_every_lookup_sees_the_newest_commit(path: Path, connection: sqlite3.Connection) -> None:
    finder = InlineReader(connection, slow=math.inf)
    for name in ("two", "three"):
        rename(path, name)
        assert finder.fetch(NAME, {"id": 1}) == [(name,)]


def test_after_a_slow_lookup_the_reader_rests(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.read.inline._REST", 1e9)
    finder = InlineReader(connection, slow=0.0)
    assert finder.fetch(NAME, {"id": 1}) == [("one",)]
    assert finder.fetch(NAME, {"id": 1}) is None


async def test_a_resting_reader_is_replaced_by_the_batched_one(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.read.inline._REST", 1e9)
    readers._inline._slow = 0.0
    for _ in range(3):
        assert await readers.lookup(NAME, {"id": 1}) == [("one",)]


def test_a_lock_makes_the_inline_reader_decline(path: Path, connection: sqlite3.Connection) -> None:
    finder = InlineReader(connection, slow=math.inf)
    with closing(sqlite3.connect(path, isolation_level=None)) as alone:
        alone.execute("PRAGMA locking_mode = EXCLUSIVE")
        alone.execute("UPDATE things SET name = 'mine' WHERE id = 1")
        assert finder.fetch(NAME, {"id": 1}) is None
    assert finder.fetch(NAME, {"id": 1}) == [("mine",)]


async def test_a_row_that_is_no_text_is_corrupt_and_keeps_no_snapshot_open(path: Path, readers: Readers) -> None:
    with pytest.raises(CorruptRecord):
        await readers.lookup(NAME, {"id": 2})
    rename(path, "two")
    assert await readers.lookup(NAME, {"id": 1}) == [("two",)]


async def test_no_lookup_succeeds_after_close(path: Path) -> None:
    readers = Readers()
    await readers.open(str(path), 50)
    await readers.close()
    with pytest.raises(LedgerUnavailable):
        await readers.lookup(NAME, {"id": 1})
