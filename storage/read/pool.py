"""Connections that only read. Law: what is asked on one is read to its end, so that none sees an old snapshot."""

import asyncio
import sqlite3
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from functools import partial
from typing import Any

import aiosqlite

from gateway.ledger.errors import LedgerUnavailable
from storage.compiled import DATA_VERSION
from storage.read.grouped import Finder, GroupedReader, Query, Row, read_failure
from storage.threads import FAILURES, no_thread, text_of

Fetch = Callable[[str, dict[str, Any]], Awaitable[list[Row]]]

_CONNECTIONS = 3
"""For reads that may be long. Each is a thread: more would only wait for the interpreter's lock."""


class Readers:
    """`find` is for what an index finds, `fetch` for a few rows; `scan` for what grows, on a pool. An open cursor would hold
    its connection on the snapshot that it began with: none survives any of them."""

    _finder: Finder
    _short: GroupedReader

    def __init__(self) -> None:
        self._idle: asyncio.Queue[aiosqlite.Connection] = asyncio.Queue()
        self._opened = 0
        self._running = False
        self._closed = False
        self._path = ""
        self._busy_timeout_ms = 0
        self._watching: sqlite3.Connection | None = None

    async def open(self, path: str, busy_timeout_ms: int) -> None:
        """Raises: LedgerUnavailable."""
        self._path, self._busy_timeout_ms = path, busy_timeout_ms
        try:
            # All before any thread starts: one whose connection fails to open would outlive the event loop.
            with ExitStack() as failed:
                patience = (0, *[busy_timeout_ms] * (1 + _CONNECTIONS))
                finder, short, *opened = [failed.enter_context(closing(_connect(path, one))) for one in patience]
                self._finder, self._short = Finder(finder), GroupedReader(short)
                self._running = True
                for connection in opened:
                    self._idle.put_nowait(await aiosqlite.Connection(partial(_same, connection), iter_chunk_size=64))
                    self._opened += 1
                failed.pop_all()
        except FAILURES as error:
            raise LedgerUnavailable(f"the database does not open for reading: {text_of(error)}") from error
        except RuntimeError as error:
            raise no_thread(error) from error

    async def find(self, sql: str, values: dict[str, Any]) -> list[Row]:
        """All rows of a query that an index answers with a few. Raises: LedgerUnavailable, CorruptRecord."""
        self._refuse_when_closed()
        rows = self._finder.find(sql, values)
        return await self.fetch(sql, values) if rows is None else rows

    async def fetch(self, sql: str, values: dict[str, Any]) -> list[Row]:
        """All rows of a query that finds few. Raises: LedgerUnavailable, CorruptRecord."""
        [rows] = await self.fetch_all((sql, values))
        return rows

    async def fetch_all(self, *queries: Query) -> list[list[Row]]:
        """As `fetch`, several from one snapshot."""
        self._refuse_when_closed()
        return await self._short.fetch(*queries)

    async def scan(self, sql: str, values: dict[str, Any]) -> list[Row]:
        """All rows, as many as there are. Raises: LedgerUnavailable, CorruptRecord."""
        async with self._borrowed() as connection:
            return await _fetch(connection, sql, values)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Fetch, None]:
        """Several queries of one moment, as many rows as there are. Raises: LedgerUnavailable, CorruptRecord."""
        async with self._borrowed() as connection:
            try:
                await _fetch(connection, "BEGIN", {})
                yield partial(_fetch, connection)
            finally:
                # What is asked of a connection is done in order, also when nobody waits for it any more.
                with suppress(*FAILURES):
                    await connection.rollback()

    @asynccontextmanager
    async def _borrowed(self) -> AsyncGenerator[aiosqlite.Connection, None]:
        """One of the pool, on no snapshot."""
        self._refuse_when_closed()
        connection = await self._idle.get()
        try:
            if connection.in_transaction:  # what ended the last one has failed, or is still to be done
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

    async def version(self) -> int:
        """Another number than the last one whenever there was a commit in between. Raises: LedgerUnavailable."""
        self._refuse_when_closed()
        try:
            return await asyncio.to_thread(self._data_version)
        except FAILURES as error:
            raise LedgerUnavailable(f"the database could not be read: {text_of(error)}") from error

    def _data_version(self) -> int:
        """On a connection of its own: what one says can only be compared with what the same one said before."""
        if self._watching is None:
            self._watching = _connect(self._path, self._busy_timeout_ms)
        number: int = self._watching.execute(DATA_VERSION).fetchone()[0]
        return number

    async def close(self) -> None:
        """Waits for the reads under way."""
        if self._closed:
            return
        self._closed = True
        if self._running:
            self._finder.close()
            await self._short.close()
        if self._watching is not None:
            self._watching.close()
        for _ in range(self._opened):
            connection = await self._idle.get()
            await connection.close()


async def _fetch(connection: aiosqlite.Connection, sql: str, values: dict[str, Any]) -> list[Row]:
    try:
        # One job of the connection's thread from execute to the last row: a caller that is cancelled in between
        # leaves no cursor behind.
        return list(await connection.execute_fetchall(sql, values))  # type: ignore[arg-type]
    except FAILURES as error:
        # Where it failed a cursor is still open, and would hold the connection on its snapshot.
        traceback.clear_frames(error.__traceback__)
        raise read_failure(error) from error


def _connect(path: str, busy_timeout_ms: int) -> sqlite3.Connection:
    """Used by one thread at a time, which is not the one that opens it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_ms / 1000, check_same_thread=False)
    try:
        connection.execute("PRAGMA query_only = 1")
        # 16 MB at most: what is read often should not be fetched from the file again and again.
        connection.execute("PRAGMA cache_size = -16000")
    except FAILURES:
        connection.close()
        raise
    return connection


def _same(connection: sqlite3.Connection) -> sqlite3.Connection:
    return connection
