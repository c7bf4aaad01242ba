"""How a connection that writes is opened. Law: what it commits survives the loss of power."""

import sqlite3

from storage.threads import FAILURES

OLDEST_USER = "PRAGMA user_version"
"""The oldest version of the schema whose code may work on a database; whoever has migrated it last has written it."""


def connect(path: str, busy_timeout_ms: int) -> sqlite3.Connection:
    """A connection that commits durably; transactions are begun by hand. Raises: sqlite3.Error, MemoryError."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=busy_timeout_ms / 1000)
    try:
        # Only a file that is still empty takes it. A turn touches many small rows: with half the page, half is written.
        connection.execute("PRAGMA page_size = 2048")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # 8 MB. A page that many turns write is copied into the database once for all of them: 5 % of a turn.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        # 16 MB. A long read, a backup for one, makes the log grow; without a limit the file would stay as large for good.
        connection.execute("PRAGMA journal_size_limit = 16000000")
        # Some builds of SQLite write zeros over all that is deleted, and to the log first: a purge took 20 times as long.
        connection.execute("PRAGMA secure_delete = FAST")
    except FAILURES:
        connection.close()
        raise
    return connection
