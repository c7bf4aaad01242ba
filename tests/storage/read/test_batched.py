"""Simultaneous reads are answered together, each as if it were alone."""

import asyncio
import sqlite3
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.ledger.errors import LedgerUnavailable
from storage.read.batched import BatchedReader
from storage.statement import Query

COUNT = Query("COUNT", "SELECT count(*) FROM numbers")
ONE = Query("ONE", "SELECT number FROM numbers WHERE number = :number")
MISSING = Query("MISSING", "SELECT * FROM missing")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(number,) for number in range(100)])
    return path


@pytest.fixture
async def reader(path: Path) -> AsyncGenerator[BatchedReader, None]:
    reader = BatchedReader(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    yield reader
    await reader.close()


async def test_a_query_that_fails_leaves_its_neighbours_alone(reader: BatchedReader) -> None:
    good, bad, other = await asyncio.gather(
        reader.fetch((ONE, {"number": 1})),
        reader.fetch((MISSING, {})),
        reader.fetch((ONE, {"number": 2})),
        return_exceptions=True,
    )
    assert (good, other) == ([[(1,)]], [[(2,)]])
    assert isinstance(bad, LedgerUnavailable)
    assert "no such table" in str(bad)


async def test_a_query_that_cannot_even_be_asked_leaves_its_neighbours_alone(reader: BatchedReader) -> None:
    async def bad() -> None:
        with pytest.raises(OverflowError):
            await reader.fetch((ONE, {"number": 2**63}))

    async with asyncio.timeout(10):
        _, good = await asyncio.gather(bad(), reader.fetch((ONE, {"number": 1})))
        assert good == [[(1,)]]
        assert await reader.fetch((ONE, {"number": 2})) == [[(2,)]]


@pytest.mark.parametrize(("statement", "told"), [("BEGIN", LedgerUnavailable), ("COMMIT", list)])
async def test_a_group_that_cannot_begin_or_end_for_lack_of_memory_is_not_in_the_way_of_the_next(
    path: Path, short_of_memory_for: list[str], statement: str, told: type[object]
) -> None:
    reader = BatchedReader(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    short_of_memory_for.append(statement)
    [answer] = await asyncio.gather(reader.fetch((COUNT, {})), return_exceptions=True)
    assert isinstance(answer, told)
    assert short_of_memory_for == []
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("INSERT INTO numbers VALUES (100)")
    assert await reader.fetch((COUNT, {})) == [[(101,)]]
    await reader.close()


async def test_closing_that_is_broken_off_may_be_done_again(path: Path) -> None:
    reader = BatchedReader(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await reader.close()
    await reader.close()


_WITHOUT_MEMORY = """
import asyncio, sqlite3
from storage.read.batched import BatchedReader
from storage.statement import Query

async def main():
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA hard_heap_limit = 3000000")
    reader = BatchedReader(connection)
    long = Query("LONG", "SELECT zeroblob(8000000) || ''")
    [failure] = await asyncio.gather(reader.fetch((long, {})), return_exceptions=True)
    print(type(failure).__name__, failure)
    print(await reader.fetch((Query("ONE", "SELECT 1"), {})))
    await reader.close()

asyncio.run(main())
"""


def test_a_read_without_memory_fails_and_the_next_one_is_answered() -> None:
    # In a process of its own: SQLite takes the limit for all of it, and never a higher one again.
    command = [sys.executable, "-c", _WITHOUT_MEMORY]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.splitlines() == [
        "LedgerUnavailable the database could not be read: no memory",
        "[[(1,)]]",
    ], ran.stderr


async def test_a_job_reads_as_much_as_it_wants(path: Path, reader: BatchedReader) -> None:
    def first(connection: sqlite3.Connection) -> object:
        with closing(connection.execute("SELECT number FROM numbers ORDER BY number")) as rows:
            return next(rows)

    assert await reader.run(first) == (0,)


async def test_a_cancelled_read_delays_no_other(reader: BatchedReader) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await reader.fetch((COUNT, {}))
    assert await reader.fetch((COUNT, {})) == [[(100,)]]


async def test_a_read_sees_what_was_committed_before_it_was_asked(path: Path, reader: BatchedReader) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        for count in range(101, 121):
            writer.execute("INSERT INTO numbers VALUES (?)", (count,))
            answers = await asyncio.gather(*(reader.fetch((COUNT, {})) for _ in range(5)))
            assert answers == [[[(count,)]]] * 5


async def test_several_queries_of_one_read_see_one_moment(path: Path, reader: BatchedReader) -> None:
    changes = "INSERT INTO numbers SELECT max(number) + 1 FROM numbers"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        for _ in range(20):
            reading = reader.fetch((COUNT, {}), (COUNT, {}))
            [[first], [second]], _ = await asyncio.gather(reading, asyncio.to_thread(lambda: None))
            assert first == second
            writer.execute(changes)


async def test_all_reads_fail_when_the_database_is_gone(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader = BatchedReader(connection)
    connection.close()
    answers = await asyncio.gather(*(reader.fetch((COUNT, {})) for _ in range(2)), return_exceptions=True)
    assert [str(answer) for answer in answers] == [
        "the database could not be read: Cannot operate on a closed database."
    ] * 2
    await reader.close()


async def test_what_was_asked_before_the_end_is_answered(path: Path) -> None:
    reader = BatchedReader(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    answer, _ = await asyncio.gather(reader.fetch((COUNT, {})), reader.close())
    assert answer == [[(100,)]]


class Found:
    """What a read has found."""


async def test_nothing_of_a_read_is_kept_until_the_next_one(reader: BatchedReader) -> None:
    found = await reader.run(lambda _: Found())
    kept = weakref.ref(found)
    del found
    await asyncio.sleep(0)  # the step of the loop that has brought the answer holds it to its end
    assert kept() is None
