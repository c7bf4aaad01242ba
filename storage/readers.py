"""Connections that only read. Law: one query at a time on each, read to its end, so that none sees an old snapshot."""

import asyncio
import sqlite3
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiosqlite

from gateway.commits import CorruptRecord, LedgerUnavailable

Row = tuple[Any, ...]
Fetch = Callable[[str, dict[str, Any]], Awaitable[list[Row]]]

_CONNECTIONS = 4
"""Each is a thread; reads take microseconds, so that more would only wait for the interpreter's lock."""


class Readers:
    """A pool. An open cursor holds its connection on the snapshot that it began with: none survives a `fetch`."""

    def __init__(self) -> None:
        self._idle: asyncio.Queue[aiosqlite.Connection] = asyncio.Queue()
        self._opened = 0
        self._closed = False

    async def open(self, path: str, busy_timeout_ms: int) -> None:
        """Raises: LedgerUnavailable."""
        try:
            # All before any thread starts: one whose connection fails to open would outlive the event loop.
            opened = [_connect(path, busy_timeout_ms) for _ in range(_CONNECTIONS)]
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the database does not open for reading: {error}") from error
        for connection in opened:
            self._idle.put_nowait(await aiosqlite.Connection(partial(_same, connection), iter_chunk_size=64))
            self._opened += 1

    async def fetch(self, sql: str, values: dict[str, Any]) -> list[Row]:
        """All rows. Raises: LedgerUnavailable, CorruptRecord."""
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        connection = await self._idle.get()
        try:
            return await _fetch(connection, sql, values)
        finally:
            self._idle.put_nowait(connection)

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Fetch, None]:
        """Several queries of one moment. Raises: LedgerUnavailable, CorruptRecord."""
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        connection = await self._idle.get()
        try:
            await _fetch(connection, "BEGIN", {})
            yield partial(_fetch, connection)
        finally:
            # What is asked of a connection is done in order, also when nobody waits for it any more.
            try:
                await connection.rollback()
            finally:
                self._idle.put_nowait(connection)

    async def close(self) -> None:
        """Waits for the reads under way."""
        self._closed = True
        for _ in range(self._opened):
            connection = await self._idle.get()
            await connection.close()


async def _fetch(connection: aiosqlite.Connection, sql: str, values: dict[str, Any]) -> list[Row]:
    try:
        # One job of the connection's thread from execute to the last row: a caller that is cancelled in between
        # leaves no cursor behind.
        return list(await connection.execute_fetchall(sql, values))  # type: ignore[arg-type]
    except sqlite3.Error as error:
        # Where it failed a cursor is still open, and would hold the connection on its snapshot.
        traceback.clear_frames(error.__traceback__)
        if str(error).startswith(_NO_TEXT):
            raise CorruptRecord(f"a row cannot be read: {error}") from error
        raise LedgerUnavailable(f"the database could not be read: {error}") from error


_NO_TEXT = "Could not decode to UTF-8"
"""What sqlite3 says of one row, in the words that it has for a fault of the database."""


def _connect(path: str, busy_timeout_ms: int) -> sqlite3.Connection:
    """Used by one thread at a time, which is not the one that opens it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_ms / 1000, check_same_thread=False)
    connection.execute("PRAGMA query_only = 1")
    return connection


def _same(connection: sqlite3.Connection) -> sqlite3.Connection:
    return connection
