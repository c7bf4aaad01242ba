"""Groups of units on a file of SQLite. Law: a group is one transaction; a unit that does not fit is rolled back alone."""

import math
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.ledger.errors import Conflict, LedgerUnavailable
from storage.connection import JOURNAL_LIMIT, connect
from storage.errors import FAILURES, text_of, trouble, unavailable
from storage.statement import Step
from storage.write.conflicts import conflict
from storage.write.open_file import OpenFile
from storage.write.trouble import Trouble
from storage.write.writer import Outcome, Unit

_READ_AHEAD_PERIOD = 1.0
"""Seconds. The request costs some 50 us where the whole log is in memory."""
_READ_AHEAD = 128 * 1024
"""Bytes of one request. Linux cuts a request to its maximum read-ahead, which is this by default."""

_UNFIT = (sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""Raised, besides exceptions outside of SQLite's, for a value that no column can hold: an error of the unit alone."""


class LogReadAhead:
    """Keeps the write-ahead log of the database at this path in memory. Only an optimisation: nothing depends on it.

    A frame of the log begins and ends within pages of the system. Where the system has dropped these pages, as small
    virtual machines do within seconds, each is read from the disk before it is written, and a commit takes twice as long.
    """

    def __init__(self, path: str, now: Callable[[], float] = time.monotonic) -> None:
        # SQLite keeps the log in the directory of the file itself, not in the directory of a link to the file.
        self._path = Path(f"{os.path.realpath(path)}-wal")
        self._now = now
        self._next = 0.0

    def request(self) -> None:
        """Asks the system to load the log, once in a period at most; does not wait."""
        now = self._now()
        if now >= self._next and hasattr(os, "posix_fadvise"):
            self._next = now + _READ_AHEAD_PERIOD
            with suppress(OSError), self._path.open("rb", buffering=0) as log:
                # The next frames are mostly written within the size that the log keeps.
                for offset in range(0, min(os.fstat(log.fileno()).st_size, JOURNAL_LIMIT), _READ_AHEAD):
                    os.posix_fadvise(log.fileno(), offset, _READ_AHEAD, os.POSIX_FADV_WILLNEED)


class FileStore:
    def __init__(self, path: str, busy_timeout_ms: int) -> None:
        self._path = path
        self._busy_timeout_ms = busy_timeout_ms
        self._log = LogReadAhead(path)
        self._connection: sqlite3.Connection
        self.trouble = Trouble()
        self.file: OpenFile
        """From `open` on."""

    def open(self) -> None:
        """Raises: LedgerUnavailable."""
        try:
            self._connection = connect(self._path, self._busy_timeout_ms)
            self.file = OpenFile(self._path)
        except (*FAILURES, OSError) as error:
            raise LedgerUnavailable(f"the database does not open for writing: {text_of(error)}") from error

    def close(self) -> None:
        self._connection.close()

    def write(
        self, units: list[Unit], waiting: Callable[[], list[Unit]], *, closing: bool
    ) -> tuple[list[Outcome], list[Unit]]:
        """As `Store.write`."""
        written = self._write(units, waiting, closing=closing)
        self._log.request()
        return written

    def _write(
        self, units: list[Unit], waiting: Callable[[], list[Unit]], *, closing: bool
    ) -> tuple[list[Outcome], list[Unit]]:
        connection = self._connection
        if self.file.gone():
            self.trouble.refused("removed")
            return [(unit, self.file.error()) for unit in units], []
        try:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except FAILURES:
                # Units that came during the wait have waited as well: one timeout for all, not one after the other.
                units += waiting()
                raise
            failures = _apply_all(connection, units)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except FAILURES as error:
            # Some failures have rolled back already, and with a lost disk the rollback fails, too.
            with suppress(*FAILURES):
                connection.execute("ROLLBACK")
            self.trouble.refused(trouble(error))
            # A unit waits only for a locked database.
            now = math.inf if closing or trouble(error) != "locked" else time.monotonic()
            failed = ((unit, unavailable("the database did not commit", error)) for unit in units if unit.until <= now)
            return [*failed], [unit for unit in units if now < unit.until]
        self.trouble.stored(units)
        return list(zip(units, failures, strict=True)), []


def _apply_all(connection: sqlite3.Connection, units: list[Unit]) -> list[Exception | None]:
    cursor = connection.cursor()
    # Without savepoints first, as nearly all units succeed: a savepoint copies every page that its unit changes.
    for unit in units:
        outcome = _apply(cursor, unit.steps)
        if outcome is not None:
            cursor.execute("ROLLBACK")
            return [outcome] if len(units) == 1 else _apply_each(cursor, units)
    return [None] * len(units)


def _apply_each(cursor: sqlite3.Cursor, units: list[Unit]) -> list[Exception | None]:
    """Each unit with a savepoint, to which it alone is rolled back."""
    cursor.execute("BEGIN IMMEDIATE")
    outcomes = []
    for unit in units:
        cursor.execute("SAVEPOINT unit")
        outcome = _apply(cursor, unit.steps)
        if outcome is not None:
            cursor.execute("ROLLBACK TO unit")
        cursor.execute("RELEASE unit")
        outcomes.append(outcome)
    return outcomes


def _apply(cursor: sqlite3.Cursor, steps: list[Step]) -> Exception | None:
    """The reason to roll the unit back, or None. Raises: sqlite3.Error, MemoryError when the database itself fails."""
    for statement, values in steps:
        try:
            touched = cursor.execute(statement.sql, statement.parameters(values)).rowcount
        except sqlite3.IntegrityError as error:
            return conflict(statement, error)
        except _UNFIT as error:
            return error
        except FAILURES:
            raise
        except Exception as error:  # noqa: BLE001  # of this unit alone: the thread continues with the others
            return error
        if statement.rows is not None and touched != statement.rows:
            return Conflict(f"could not {statement.what}: {touched} rows instead of {statement.rows}")
    return None
