"""The connections that only read. Law: every query is read to its end: an open cursor would keep its connection on the
snapshot of its beginning."""

import asyncio
import sqlite3
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from functools import partial
from typing import Any, TypeVar

import aiosqlite

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Changed
from gateway.ledger.tasks import PageLimits, TaskPage
from storage.compiled import DATA_VERSION
from storage.connection import OLDEST_USER
from storage.errors import FAILURES, TextTooLong, read_failure, text_of
from storage.read.batched import BatchedReader, Job
from storage.read.inline import InlineReader
from storage.read.log_pages import log_page
from storage.read.pages import task_page
from storage.read.queries import Asked
from storage.statement import Query, Row
from storage.worker import no_thread

T = TypeVar("T")

OLDEST = Query("OLDEST_USER", OLDEST_USER)
"""The oldest version of the schema whose code may use the database."""

_CONNECTIONS = 3
"""Connections for reads that may be long. Each has a thread; more threads would only wait for the interpreter's lock."""

_INTERVAL = 0.05
"""Seconds between two looks at the number of the last commit, which cost microseconds."""

_LONGEST = 256 * 1024
"""Bytes of the longest text that a short read may find. SQLite checks it before it reads the text."""


class Readers:
    """`lookup` is for a few rows that an index finds, `fetch` for other short reads; `scan` for long ones, on a pool. `run`
    is for reads that stop by themselves when they have enough; they take turns. A short read that meets a long text
    becomes one of these."""

    _inline: InlineReader
    _batched: BatchedReader
    _long: BatchedReader

    def __init__(self) -> None:
        self._idle: asyncio.Queue[aiosqlite.Connection] = asyncio.Queue()
        self._opened = 0
        self._threads: list[BatchedReader] = []
        self._closed = False

    async def open(self, path: str, busy_timeout_ms: int) -> None:
        """Raises: LedgerUnavailable."""
        try:
            # All connections are opened before any thread starts: if one failed to open later, the threads would
            # outlive the event loop.
            with ExitStack() as failed:
                patience = (0, *[busy_timeout_ms] * (2 + _CONNECTIONS))
                opened = [failed.enter_context(closing(_connect(path, one))) for one in patience]
                inline, batched, long, *opened = opened
                for short in (inline, batched):
                    short.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
                self._inline = InlineReader(inline, asyncio.get_running_loop().call_soon)
                self._batched = self._started(batched, "ledger-reader")
                self._long = self._started(long, "ledger-long-reader")
                for connection in opened:
                    self._idle.put_nowait(await aiosqlite.Connection([connection].pop, iter_chunk_size=64))
                    self._opened += 1
                failed.pop_all()
        except FAILURES as error:
            raise LedgerUnavailable(f"the database does not open for reading: {text_of(error)}") from error
        except RuntimeError as error:
            raise no_thread(error) from error

    def _started(self, connection: sqlite3.Connection, name: str) -> BatchedReader:
        """Raises: LedgerUnavailable."""
        reader = BatchedReader(connection, name)
        self._threads.append(reader)
        return reader

    async def lookup(self, query: Query, values: dict[str, Any]) -> list[Row]:
        """All rows of a query that an index answers with few rows. Raises: LedgerUnavailable, CorruptRecord."""
        self._refuse_when_closed()
        rows = self._inline.fetch(query, values)
        return await self.fetch(query, values) if rows is None else rows

    async def fetch(self, query: Query, values: dict[str, Any]) -> list[Row]:
        """All rows of a query that finds few rows. Raises: LedgerUnavailable, CorruptRecord."""
        [rows] = await self.fetch_all((query, values))
        return rows

    async def fetch_all(self, *asked: Asked) -> list[list[Row]]:
        """Does what `fetch` does, for several queries on one snapshot."""
        self._refuse_when_closed()
        try:
            return await self._batched.fetch(*asked)
        except TextTooLong:
            return await self._long.fetch(*asked)

    async def run(self, job: Job[T]) -> T:
        """What the job returns, from one snapshot. Raises: LedgerUnavailable, CorruptRecord."""
        self._refuse_when_closed()
        return await self._long.run(job)

    async def log_page(self, values: dict[str, Any]) -> list[Row]:
        """As `log_pages.log_page`. Raises: LedgerUnavailable, CorruptRecord."""
        return await self.run(partial(log_page, values))

    async def page(self, filters: tuple[bool, ...], values: dict[str, Any], limits: PageLimits) -> TaskPage:
        """As `pages.task_page`, from one snapshot. Raises: LedgerUnavailable, CorruptRecord."""
        return await self.run(partial(task_page, filters, values, limits))

    async def scan(self, query: Query, values: dict[str, Any]) -> list[Row]:
        """All rows, without a limit. Raises: LedgerUnavailable, CorruptRecord."""
        async with self._borrowed() as connection:
            return await _fetch(connection, query, values)

    async def scan_all(self, *asked: Asked) -> list[list[Row]]:
        """As `scan`, for several queries on one snapshot."""
        async with self._borrowed() as connection:
            try:
                await _begin(connection)
                return [await _fetch(connection, query, values) for query, values in asked]
            finally:
                # The connection executes in order, also after its caller was cancelled.
                with suppress(*FAILURES):
                    await connection.rollback()

    @asynccontextmanager
    async def _borrowed(self) -> AsyncGenerator[aiosqlite.Connection, None]:
        """A connection of the pool, on no snapshot."""
        self._refuse_when_closed()
        connection = await self._idle.get()
        try:
            if connection.in_transaction:  # the last rollback has failed, or is still queued
                try:
                    await connection.rollback()
                except FAILURES as error:
                    raise read_failure(error) from error
            yield connection
        finally:
            self._idle.put_nowait(connection)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")

    async def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        """SQLite tells nobody, and has a number that changes with every commit. Raises: LedgerUnavailable."""
        seen = None
        while True:
            await wanted()
            version = await self._version()
            if version != seen:
                seen = version
                yield None
            await asyncio.sleep(_INTERVAL)

    async def _version(self) -> int:
        """From one connection always: only numbers of the same connection can be compared. Raises: LedgerUnavailable."""
        self._refuse_when_closed()
        return await self._batched.run(_data_version)

    async def close(self) -> None:
        """Waits for the reads under way."""
        if self._closed:
            return
        self._closed = True
        if self._threads:
            self._inline.close()
        for reader in self._threads:
            await reader.close()
        for _ in range(self._opened):
            connection = await self._idle.get()
            await connection.close()


def _data_version(connection: sqlite3.Connection) -> int:
    number: int = connection.execute(DATA_VERSION).fetchone()[0]
    return number


async def _begin(connection: aiosqlite.Connection) -> None:
    try:
        await connection.execute_fetchall("BEGIN")
    except FAILURES as error:
        raise read_failure(error) from error


async def _fetch(connection: aiosqlite.Connection, query: Query, values: dict[str, Any]) -> list[Row]:
    try:
        # One job of the connection's thread from execute to the last row: a cancelled caller leaves no open cursor.
        return list(await connection.execute_fetchall(query.sql, values))  # type: ignore[arg-type]
    except FAILURES as error:
        # The frames of the failure keep a cursor open, which would keep the connection on its snapshot.
        traceback.clear_frames(error.__traceback__)
        raise read_failure(error) from error


def _connect(path: str, busy_timeout_ms: int) -> sqlite3.Connection:
    """Opens a connection. One thread at a time uses it, and this may be another thread than the thread that opened
    it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_ms / 1000, check_same_thread=False)
    try:
        connection.execute("PRAGMA query_only = 1")
        # 16 MB at most, so that frequent reads find their pages in memory.
        connection.execute("PRAGMA cache_size = -16000")
    except FAILURES:
        connection.close()
        raise
    return connection
