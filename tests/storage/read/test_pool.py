"""Reads see the newest commit, never an old snapshot."""

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from storage.compiled import DATA_VERSION
from storage.errors import TextTooLong
from storage.read.pool import Readers
from storage.statement import Query

COUNT = Query("COUNT", "SELECT count(*) FROM numbers")
ALL = Query("ALL", "SELECT number FROM numbers ORDER BY number")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(number,) for number in range(1000)])
    return path


def add_one(path: Path) -> int:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO numbers SELECT max(number) + 1 FROM numbers")
        return int(connection.execute(COUNT.sql).fetchone()[0])


async def always() -> None:
    """Changes are wanted."""


async def test_a_read_sees_the_newest_commit_while_another_cursor_is_open(path: Path, readers: Readers) -> None:
    with closing(sqlite3.connect(path)) as elsewhere:
        cursor = elsewhere.execute(ALL.sql)
        assert cursor.fetchone() == (0,)
        for _ in range(20):
            count = add_one(path)
            assert await asyncio.gather(*(readers.fetch(COUNT, {}) for _ in range(8))) == [[(count,)]] * 8
        cursor.close()


async def test_a_read_sees_the_newest_commit_among_many_others(path: Path, readers: Readers) -> None:
    for _ in range(20):
        others = [asyncio.ensure_future(readers.fetch(ALL, {})) for _ in range(6)]  # noqa: TID251
        await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        count = add_one(path)
        assert await readers.fetch(COUNT, {}) == [(count,)]
        await asyncio.gather(*others)


async def test_a_cancelled_read_keeps_no_snapshot_open(path: Path, readers: Readers) -> None:
    for _ in range(4):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await readers.fetch(ALL, {})
    count = add_one(path)
    assert await asyncio.gather(*(readers.fetch(COUNT, {}) for _ in range(4))) == [[(count,)]] * 4


async def test_a_row_that_is_no_text_is_corrupt_and_keeps_no_snapshot_open(path: Path, readers: Readers) -> None:
    for _ in range(4):
        with pytest.raises(CorruptRecord, match="a row cannot be read"):
            await readers.fetch(Query("BROKEN", "SELECT CAST(x'ff' AS TEXT) FROM numbers"), {})
    count = add_one(path)
    assert await asyncio.gather(*(readers.fetch(COUNT, {}) for _ in range(4))) == [[(count,)]] * 4


async def test_a_snapshot_shows_one_moment_and_is_closed(path: Path, readers: Readers) -> None:
    for _ in range(4):
        reading = readers.scan_all((COUNT, {}), (COUNT, {}))
        [[before], [after]], _ = await asyncio.gather(reading, asyncio.to_thread(add_one, path))
        assert before == after
    count = add_one(path)
    assert await asyncio.gather(*(readers.fetch(COUNT, {}) for _ in range(4))) == [[(count,)]] * 4


async def test_a_snapshot_that_fails_is_closed(path: Path, readers: Readers) -> None:
    for _ in range(4):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await readers.scan_all((ALL, {}))
    count = add_one(path)
    assert await asyncio.gather(*(readers.fetch(COUNT, {}) for _ in range(4))) == [[(count,)]] * 4


async def test_a_reader_cannot_write(path: Path, readers: Readers) -> None:
    with pytest.raises(LedgerUnavailable, match="readonly"):
        await readers.fetch(Query("DELETE", "DELETE FROM numbers"), {})


async def test_a_read_that_fails_gives_its_connection_back(readers: Readers) -> None:
    for _ in range(10):
        with pytest.raises(LedgerUnavailable, match="no such table"):
            await readers.fetch(Query("MISSING", "SELECT * FROM missing"), {})
    assert await readers.fetch(COUNT, {}) == [(1000,)]


async def test_closing_waits_for_the_reads_under_way(path: Path) -> None:
    readers = Readers()
    await readers.open(str(path), 50)
    reads = asyncio.gather(*(readers.fetch(COUNT, {}) for _ in range(12)))
    await asyncio.wait([reads], timeout=0)
    await readers.close()
    assert await reads == [[(1000,)]] * 12
    for read in (readers.fetch(COUNT, {}), anext(readers.changes(always))):
        with pytest.raises(LedgerUnavailable, match="closed"):
            await read


async def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    readers = Readers()
    with pytest.raises(LedgerUnavailable, match="does not open for reading"):
        await readers.open(str(tmp_path / "missing" / "numbers.db"), 50)
    await readers.close()


@pytest.mark.parametrize("statement", ["PRAGMA query_only = 1", "PRAGMA cache_size = -16000"])
async def test_without_memory_to_open_the_file_it_is_unavailable(
    path: Path, short_of_memory_for: list[str], statement: str
) -> None:
    readers = Readers()
    short_of_memory_for.append(statement)
    with pytest.raises(LedgerUnavailable, match="does not open for reading: no memory"):
        await readers.open(str(path), 50)
    await readers.close()


async def test_reads_without_memory_are_unavailable_once(short_of_memory_for: list[str], readers: Readers) -> None:
    for read in (partial(readers.lookup, COUNT, {}), partial(readers.scan, COUNT, {})):
        short_of_memory_for.append(COUNT.sql)
        if read.func == readers.scan:
            with pytest.raises(LedgerUnavailable, match="no memory"):
                await read()
        assert await read() == [(1000,)]
    short_of_memory_for.append(DATA_VERSION)
    with pytest.raises(LedgerUnavailable, match="no memory"):
        await anext(readers.changes(always))
    assert await anext(readers.changes(always)) is None


async def test_commits_are_looked_for_on_a_connection_that_closes_with_the_others(
    path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = readers.changes(always)
    with monkeypatch.context() as none_is_opened:
        none_is_opened.delattr(sqlite3, "connect")
        assert await anext(changes) is None
    add_one(path)
    assert await anext(changes) is None
    await changes.aclose()


async def test_commits_are_looked_for_only_while_changes_are_wanted(path: Path, readers: Readers) -> None:
    wanted, looks = asyncio.Event(), 0

    async def waits() -> None:
        nonlocal looks
        await wanted.wait()
        looks += 1

    changes = readers.changes(waits)
    wanted.set()
    assert await anext(changes) is None
    wanted.clear()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(anext(changes))
        add_one(path)
        assert await readers.fetch(COUNT, {}) == [(1001,)]
        assert looks == 1
        wanted.set()
        assert await following is None
    await changes.aclose()


async def test_a_snapshot_that_could_not_be_closed_is_closed_by_the_next_read(
    path: Path, short_of_memory_for: list[str], readers: Readers
) -> None:
    for _ in range(3):  # each of the pool
        short_of_memory_for.append("ROLLBACK")
        await readers.scan_all((COUNT, {}))
    assert short_of_memory_for == []
    count = add_one(path)
    short_of_memory_for.append("ROLLBACK")
    with pytest.raises(LedgerUnavailable, match="no memory"):
        await readers.scan(COUNT, {})
    assert [await readers.scan(COUNT, {}) for _ in range(6)] == [[(count,)]] * 6


async def test_a_long_text_is_read_where_no_short_read_waits_for_it(path: Path, readers: Readers) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE texts (text TEXT)")
        connection.execute("INSERT INTO texts VALUES (?)", ("x" * 1_000_000,))
    query = Query("TEXTS", "SELECT text FROM texts")
    with pytest.raises(TextTooLong):
        await readers._batched.fetch((query, {}))
    assert readers._inline.fetch(query, {}) is None
    for read in (readers.lookup, readers.fetch, readers.scan):
        assert await read(query, {}) == [("x" * 1_000_000,)]
