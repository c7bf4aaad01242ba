"""Lookups in the event loop, and the reader that replaces them where they could take long."""

import math
import sqlite3
from collections.abc import Callable, Iterator
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


class Steps:
    """The steps of an event loop."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def next(self) -> None:
        soon, self._soon = self._soon, []
        for call in soon:
            call()


@pytest.fixture
def steps() -> Steps:
    return Steps()


def several_at_once(connection: sqlite3.Connection, steps: Steps) -> InlineReader:
    """A reader that had more than one lookup in the step before."""
    finder = InlineReader(connection, steps.call_soon, slow=math.inf)
    finder.fetch(NAME, {"id": 1})
    finder.fetch(NAME, {"id": 1})
    steps.next()
    return finder


def rename(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE things SET name = ? WHERE id = 1", (name,))


def test_a_lookup_returns_the_rows(connection: sqlite3.Connection, steps: Steps) -> None:
    finder = InlineReader(connection, steps.call_soon, slow=math.inf)
    assert finder.fetch(NAME, {"id": 1}) == [("one",)]
    assert finder.fetch(NAME, {"id": 3}) == []


def test_every_step_sees_the_newest_commit(path: Path, connection: sqlite3.Connection, steps: Steps) -> None:
    finder = InlineReader(connection, steps.call_soon, slow=math.inf)
    for name in ("two", "three"):
        rename(path, name)
        assert finder.fetch(NAME, {"id": 1}) == [(name,)]
        steps.next()


def test_the_lookups_of_one_step_share_a_snapshot(path: Path, connection: sqlite3.Connection, steps: Steps) -> None:
    finder = several_at_once(connection, steps)
    assert finder.fetch(NAME, {"id": 1}) == [("one",)]
    rename(path, "two")
    assert finder.fetch(NAME, {"id": 1}) == [("one",)]
    steps.next()
    assert not connection.in_transaction


def test_a_lookup_alone_has_a_snapshot_of_its_own(path: Path, connection: sqlite3.Connection, steps: Steps) -> None:
    finder = several_at_once(connection, steps)
    finder.fetch(NAME, {"id": 1})
    steps.next()
    assert finder.fetch(NAME, {"id": 1}) == [("one",)]
    assert not connection.in_transaction


def test_a_commit_that_is_answered_before_a_lookup_is_seen(
    path: Path, connection: sqlite3.Connection, steps: Steps
) -> None:
    """The answer to a commit that came behind the first lookup stands behind the end of its snapshot."""
    finder = several_at_once(connection, steps)
    finder.fetch(NAME, {"id": 1})
    rename(path, "two")
    found: list[object] = []
    steps.call_soon(lambda: found.append(finder.fetch(NAME, {"id": 1})))
    steps.next()
    assert found == [[("two",)]]


def test_a_snapshot_that_did_not_end_is_ended_before_the_next_lookup(
    path: Path, connection: sqlite3.Connection, steps: Steps
) -> None:
    connection.execute("BEGIN")
    connection.execute(NAME.sql, {"id": 1}).fetchall()
    rename(path, "two")
    assert InlineReader(connection, steps.call_soon, slow=math.inf).fetch(NAME, {"id": 1}) == [("two",)]


def test_after_a_slow_lookup_the_reader_rests(
    connection: sqlite3.Connection, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.read.inline._REST", 1e9)
    finder = InlineReader(connection, steps.call_soon, slow=0.0)
    assert finder.fetch(NAME, {"id": 1}) == [("one",)]
    assert finder.fetch(NAME, {"id": 1}) is None


async def test_a_resting_reader_is_replaced_by_the_batched_one(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.read.inline._REST", 1e9)
    readers._inline._slow = 0.0
    for _ in range(3):
        assert await readers.lookup(NAME, {"id": 1}) == [("one",)]


def test_a_lock_makes_the_inline_reader_decline(path: Path, connection: sqlite3.Connection, steps: Steps) -> None:
    finder = InlineReader(connection, steps.call_soon, slow=math.inf)
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
