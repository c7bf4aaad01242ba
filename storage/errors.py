"""Failures of SQLite as errors of the port. Law: `trouble` is a word of the gateway, never one of the library."""

import sqlite3

from gateway.ledger.errors import CorruptRecord, LedgerUnavailable

FAILURES = (sqlite3.Error, MemoryError)
"""What the module `sqlite3` raises when the database fails: SQLITE_NOMEM becomes a MemoryError."""

_TROUBLES = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_IOERR: "failing",
}
_PRIMARY = 0xFF
"""The bits of an error code with its kind; the others tell where it happened."""

_NOT_UTF8 = "Could not decode to UTF-8"
"""The message of `sqlite3` for a single unreadable row, which has the same class as a failure of the database."""


class TextTooLong(LedgerUnavailable):
    """A read found a text that is longer than its connection may read."""


def trouble(error: Exception) -> str:
    """`full`, `locked`, `read-only`, `failing` (the disk), or `unavailable` for everything else."""
    code = getattr(error, "sqlite_errorcode", None)
    return "unavailable" if code is None else _TROUBLES.get(code & _PRIMARY, "unavailable")


def text_of(error: Exception) -> str:
    """The message of SQLite; a MemoryError of its module has none."""
    return str(error) or "no memory"


def unavailable(what: str, error: Exception) -> LedgerUnavailable:
    failure = LedgerUnavailable(f"{what}: {text_of(error)}", trouble(error))
    failure.__cause__ = error
    return failure


def read_failure(error: Exception) -> LedgerUnavailable | CorruptRecord:
    """The error of a read that failed so."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_TOOBIG:
        return TextTooLong(text_of(error))
    if not str(error).startswith(_NOT_UTF8):
        return unavailable("the database could not be read", error)
    failure = CorruptRecord(f"a row cannot be read: {error}")
    failure.__cause__ = error
    return failure
