"""What a failure of SQLite is, in one word for those who run the gateway. Law: the words are ours, never the library's."""

import sqlite3

FAILURES = (sqlite3.Error, MemoryError)
"""What SQLite's module raises when the database fails: of SQLITE_NOMEM it makes a MemoryError."""

_WORDS = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_IOERR: "failing",
}
_PRIMARY = 0xFF
"""The bits of an error code that say what kind it is; the others say where it happened."""


def trouble_of(error: Exception) -> str:
    """`full`, `locked`, `read-only`, `failing` (the disk), or `unavailable` for all else."""
    code = getattr(error, "sqlite_errorcode", None)
    return "unavailable" if code is None else _WORDS.get(code & _PRIMARY, "unavailable")


def text_of(error: Exception) -> str:
    """What SQLite says of it; of a lack of memory its module says nothing."""
    return str(error) or "no memory"
