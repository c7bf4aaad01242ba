"""The one writer: a thread that owns the writing connection and commits all waiting units as one group. Law: a caller is
answered only when its unit is durable.

A unit that does not find its rows as expected is rolled back alone; the rest of its group is committed. While another
process has locked the database, a unit waits as long as it may and is retried with the next group.
"""

import asyncio
import math
import os
import queue
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from gateway.ledger.errors import Conflict, LedgerUnavailable
from storage.connection import JOURNAL_LIMIT, connect
from storage.errors import FAILURES, text_of, trouble, unavailable
from storage.statement import Step
from storage.worker import call_in_loop, resolve, start_worker
from storage.write.open_file import OpenFile

Done = Callable[[Exception | None], None]

_GROUP = 256
"""Units in one transaction at most: it bounds how long a unit waits for the rest of its group."""

_UNITS = 100
_PERIOD = 0.1
_MIN_GROUP = 8
_LINGER = 0.001
_LONG_LINGER = 0.003
"""Seconds. When `_UNITS` were written in the last `_PERIOD`, a group grows for `_LINGER` before it is written, or for
`_LONG_LINGER` when no unit of it is urgent; unless it is as large as the group before, and at least `_MIN_GROUP`.

A commit costs as much as ten statements: a busy ledger with many small groups is expensive. Units are counted, not commits,
and over a period that ten simultaneous callers do not fill: neither streams of 500 deltas a second nor streams that begin
and end in step are a reason to delay each of them.
"""

_READ_AHEAD_PERIOD = 1.0
"""Seconds. The request costs some 50 us where the whole log is in memory."""
_READ_AHEAD = 128 * 1024
"""Bytes of one request. Linux cuts a request to its maximum read-ahead, which is this by default."""

_UNFIT = (sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""Raised, besides exceptions outside of SQLite's, for a value that no column can hold: an error of the unit alone."""


class _Unit(msgspec.Struct):
    """A unit in the queue of the writer. `until` is the time of the monotonic clock up to which the unit waits for a
    locked database after the busy timeout."""

    steps: list[Step]
    done: Done
    until: float
    urgent: bool


_Outcome = tuple[_Unit, Exception | None]


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


class Writer:
    """`open`, `submit` and `close` are called in the event loop."""

    def __init__(self, path: str, busy_timeout_ms: int) -> None:
        self._path = path
        self._busy_timeout_ms = busy_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Unit | None] = queue.SimpleQueue()
        self._submitted: list[_Unit] = []
        """Units of the current step of the event loop: they wake the thread once, as one group."""
        self._closing = False
        self._drained = False
        self.in_trouble = False
        """The latest group could not be written."""
        self.file: OpenFile
        """From `open` on."""
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def open(self) -> None:
        """Raises: LedgerUnavailable."""
        try:
            start_worker("ledger-writer", self._run)
        except LedgerUnavailable:
            resolve(self._ended)
            raise
        try:
            await self._started
        except (*FAILURES, OSError) as error:
            raise LedgerUnavailable(f"the database does not open for writing: {text_of(error)}") from error

    def submit(self, steps: list[Step], done: Done, patience: float = 0.0, *, urgent: bool = True) -> None:
        """Stores all steps or none; `done` is called in the event loop, in the order of submission.

        `patience`: seconds to wait for a locked database; then units with more patience may be answered after later ones
        with less. A unit that is not urgent may wait some milliseconds for a larger group.
        """
        if self._closing:
            self._loop.call_soon(done, LedgerUnavailable("the ledger is closed"))
        else:
            if not self._submitted:
                self._loop.call_soon(self._hand_over)
            until = time.monotonic() + patience if patience else 0.0
            self._submitted.append(_Unit(steps, done, until, urgent))

    def _hand_over(self) -> None:
        submitted, self._submitted = self._submitted, []
        for one in submitted:
            self._queue.put(one)

    async def close(self) -> None:
        """Commits all submitted units, calls their callbacks and ends the thread."""
        if not self._closing:
            self._closing = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._ended)

    # --- in the thread ---

    def _run(self) -> None:
        try:
            connection = connect(self._path, self._busy_timeout_ms)
            self.file = OpenFile(self._path)
        except (*FAILURES, OSError) as error:
            call_in_loop(self._loop, resolve, self._started, error)
        else:
            call_in_loop(self._loop, resolve, self._started)
            with closing(connection):
                self._commit_groups(connection)
        call_in_loop(self._loop, resolve, self._ended)

    def _commit_groups(self, connection: sqlite3.Connection) -> None:
        written = deque([-math.inf] * _UNITS, _UNITS)
        retried: list[_Unit] = []
        enough = _MIN_GROUP
        log = LogReadAhead(self._path)
        while retried or not self._drained:
            if not retried:
                first = self._queue.get()
                if first is None:
                    return
                retried = [first]
            units = [*retried, *self._waiting(_GROUP - len(retried))]
            if time.monotonic() - written[0] < _PERIOD and len(units) < enough and not self._drained:
                time.sleep(_LINGER if any(unit.urgent for unit in units) else _LONG_LINGER)
                units += self._waiting(_GROUP - len(units))
            outcomes, retried = self._write(connection, units)
            count = len(outcomes) + len(retried)
            written.extend([time.monotonic()] * count)
            enough = min(max(count, _MIN_GROUP), _GROUP)
            call_in_loop(self._loop, _deliver, outcomes)
            log.request()

    def _waiting(self, at_most: int) -> list[_Unit]:
        units: list[_Unit] = []
        while len(units) < at_most:
            try:
                unit = self._queue.get_nowait()
            except queue.Empty:
                break
            if unit is None:
                self._drained = True
                break
            units.append(unit)
        return units

    def _write(self, connection: sqlite3.Connection, units: list[_Unit]) -> tuple[list[_Outcome], list[_Unit]]:
        """The outcomes, and the units that wait for the lock of the database and are retried."""
        if self.file.gone():
            self.in_trouble = True
            return [(unit, self.file.error()) for unit in units], []
        try:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except FAILURES:
                # Units that came during the wait have waited as well: one timeout for all, not one after the other.
                units += self._waiting(self._queue.qsize())
                raise
            failures = _apply_all(connection, units)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except FAILURES as error:
            # Some failures have rolled back already, and with a lost disk the rollback fails, too.
            with suppress(*FAILURES):
                connection.execute("ROLLBACK")
            self.in_trouble = True
            # A unit waits only for a locked database.
            now = math.inf if self._closing or trouble(error) != "locked" else time.monotonic()
            failed = ((unit, unavailable("the database did not commit", error)) for unit in units if unit.until <= now)
            return [*failed], [unit for unit in units if now < unit.until]
        self.in_trouble = False
        return list(zip(units, failures, strict=True)), []


def _apply_all(connection: sqlite3.Connection, units: list[_Unit]) -> list[Exception | None]:
    cursor = connection.cursor()
    # Without savepoints first, as nearly all units succeed: a savepoint copies every page that its unit changes.
    for unit in units:
        outcome = _apply(cursor, unit.steps)
        if outcome is not None:
            cursor.execute("ROLLBACK")
            return [outcome] if len(units) == 1 else _apply_each(cursor, units)
    return [None] * len(units)


def _apply_each(cursor: sqlite3.Cursor, units: list[_Unit]) -> list[Exception | None]:
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
            conflict = Conflict(f"could not {statement.what}: {error}")
            conflict.__cause__ = error
            return conflict
        except _UNFIT as error:
            return error
        except FAILURES:
            raise
        except Exception as error:  # noqa: BLE001  # of this unit alone: the thread continues with the others
            return error
        if statement.rows is not None and touched != statement.rows:
            return Conflict(f"could not {statement.what}: {touched} rows instead of {statement.rows}")
    return None


# --- back in the event loop ---


def _deliver(outcomes: list[_Outcome]) -> None:
    for unit, outcome in outcomes:
        try:
            unit.done(outcome)
        except Exception as error:  # noqa: BLE001  # reported as the loop does for any callback; the others are called
            what = {"message": "a callback of the ledger failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)
