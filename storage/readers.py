"""Connections that only read. Law: one query at a time on each, read to its end, so that none sees an old snapshot."""

import asyncio
import sqlite3
from functools import partial
from typing import Any

import aiosqlite

from gateway.commits import LedgerUnavailable
from storage.compiled import DATA_VERSION

Row = tuple[Any, ...]

_CONNECTIONS = 4
"""Each is a thread; reads take microseconds, so that more would only wait for the interpreter's lock."""


class Readers:
    """A pool. An open cursor holds its connection on the snapshot that it began with: none survives a `fetch`."""

    def __init__(self) -> None:
        self._idle: asyncio.Queue[aiosqlite.Connection] = asyncio.Queue()
        self._opened = 0
        self._closed = False
        self._path = ""
        self._busy_timeout_ms = 0
        self._watching: sqlite3.Connection | None = None

    async def open(self, path: str, busy_timeout_ms: int) -> None:
        """Raises: LedgerUnavailable."""
        self._path, self._busy_timeout_ms = path, busy_timeout_ms
        try:
            # All before any thread starts: one whose connection fails to open would outlive the event loop.
            opened = [_connect(path, busy_timeout_ms) for _ in range(_CONNECTIONS)]
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the database does not open for reading: {error}") from error
        for connection in opened:
            self._idle.put_nowait(await aiosqlite.Connection(partial(_same, connection), iter_chunk_size=64))
            self._opened += 1

    async def fetch(self, sql: str, values: dict[str, Any]) -> list[Row]:
        """All rows. Raises: LedgerUnavailable."""
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        connection = await self._idle.get()
        try:
            # One job of the connection's thread from execute to the last row: a caller that is cancelled in between
            # leaves no cursor behind.
            return list(await connection.execute_fetchall(sql, values))  # type: ignore[arg-type]
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the database could not be read: {error}") from error
        finally:
            self._idle.put_nowait(connection)

    async def version(self) -> int:
        """Another number than the last one whenever there was a commit in between. Raises: LedgerUnavailable."""
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        try:
            return await asyncio.to_thread(self._data_version)
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the database could not be read: {error}") from error

    def _data_version(self) -> int:
        """On a connection of its own: what one says can only be compared with what the same one said before."""
        if self._watching is None:
            self._watching = _connect(self._path, self._busy_timeout_ms)
        number: int = self._watching.execute(DATA_VERSION).fetchone()[0]
        return number

    async def close(self) -> None:
        """Waits for the reads under way."""
        self._closed = True
        if self._watching is not None:
            self._watching.close()
        for _ in range(self._opened):
            connection = await self._idle.get()
            await connection.close()


def _connect(path: str, busy_timeout_ms: int) -> sqlite3.Connection:
    """Used by one thread at a time, which is not the one that opens it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_ms / 1000, check_same_thread=False)
    connection.execute("PRAGMA query_only = 1")
    return connection


def _same(connection: sqlite3.Connection) -> sqlite3.Connection:
    return connection
