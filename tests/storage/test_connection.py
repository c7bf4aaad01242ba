"""The writing connection: it survives the loss of power, deletes cheaply and keeps the log short."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from storage.connection import connect

MB = 1_000_000


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(str(path), 1000)) as connection:
        yield connection


def log_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def fill(connection: sqlite3.Connection, size: int) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS said (text TEXT NOT NULL) STRICT")
    connection.execute("INSERT INTO said VALUES (?)", ("x" * size,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_what_is_committed_survives_the_loss_of_power(path: Path) -> None:
    with connected(path) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    assert (mode, synchronous) == ("wal", 2)


def test_what_goes_is_not_written_once_more(path: Path) -> None:
    with connected(path) as connection:
        fill(connection, 4 * MB)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("DELETE FROM said")
        assert log_size(path) < MB // 4


def test_room_that_was_freed_is_used_again(path: Path) -> None:
    with connected(path) as connection:
        for _ in range(5):
            fill(connection, 2 * MB)
            connection.execute("DELETE FROM said")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < 3 * MB


def test_a_log_that_had_to_grow_under_a_long_read_is_cut_again(path: Path) -> None:
    with connected(path) as connection, connected(path) as reader:
        fill(connection, 1)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM said").fetchone()
        for _ in range(6):
            fill(connection, 4 * MB)
        grown = log_size(path)
        reader.execute("COMMIT")
        for _ in range(3):
            fill(connection, 1)
        assert grown > 24 * MB
        assert log_size(path) < 17 * MB
