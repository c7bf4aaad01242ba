"""Opens the connection that writes. Law: what it commits survives the loss of power."""

import sqlite3
import time

from storage.errors import FAILURES

OLDEST_USER = "PRAGMA user_version"
"""The oldest version of the schema whose code may use the database; the latest migration has set it."""

_LOOK = 0.01
"""Seconds from one try to the next."""

JOURNAL_LIMIT = 16_000_000
"""Bytes. A long read, as a backup, makes the write-ahead log grow; without a limit the file would keep that size."""


def connect(path: str, busy_timeout_ms: int) -> sqlite3.Connection:
    """A connection that commits durably; transactions are begun by hand. Raises: sqlite3.Error, MemoryError."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_ms / 1000)
    try:
        # Only an empty file takes it. A turn changes many small rows: half the page size halves what is written.
        connection.execute("PRAGMA page_size = 2048")
        _write_ahead(connection, busy_timeout_ms / 1000)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # 8 MB. A page that many turns change is copied into the database once for all of them: 5 % of a turn.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}")
        # Some builds of SQLite overwrite deleted rows with zeros, in the log first: a purge took 20 times as long.
        connection.execute("PRAGMA secure_delete = FAST")
    except FAILURES:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection, patience: float) -> None:
    """The mode of a new file may be set by several processes that start at once, for which SQLite does not wait by itself."""
    until = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_LOOK)
        else:
            return
