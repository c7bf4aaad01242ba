"""Keeps the write-ahead log in memory while it is written. Law: it is a wish of the system; nothing depends on it.

A frame of the log begins and ends within pages of the system. Where that has dropped them, as small virtual machines do
within seconds, each is read from the disk before it is written, and a commit takes twice as long.

One thread owns the connection that writes and commits all that waits as one group. Law: told only when durable.

A unit of a group that does not find its rows as expected is taken back alone; its neighbours are committed. While
somebody else has locked the database, a unit waits for as long as it may and goes with the next group.
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
from dataclasses import dataclass
from pathlib import Path

from gateway.ledger.errors import Conflict, LedgerUnavailable
from storage.connection import connect
from storage.statement import Step
from storage.threads import FAILURES, start, succeed, tell, text_of, trouble_of

_READ_AHEAD_PERIOD = 1.0
"""Seconds. Asking costs some 50 us where all of the log is there."""
_PIECE = 128 * 1024
"""Bytes. Linux cuts what is asked for to what it would read ahead at most, which is this by default."""
_ENOUGH = 16_000_000
"""Bytes, from the beginning, where the next frames are mostly written: what `journal_size_limit` leaves of a log."""


class WarmLog:
    """Of the database at this path."""

    def __init__(self, path: str, now: Callable[[], float] = time.monotonic) -> None:
        # SQLite keeps it beside the file itself, whatever links to that.
        self._path = Path(f"{os.path.realpath(path)}-wal")
        self._now = now
        self._next = 0.0

    def keep(self) -> None:
        """Asks for it, at most once in a while; does not wait for it."""
        now = self._now()
        if now >= self._next and hasattr(os, "posix_fadvise"):
            self._next = now + _READ_AHEAD_PERIOD
            with suppress(OSError), self._path.open("rb", buffering=0) as log:
                for offset in range(0, min(os.fstat(log.fileno()).st_size, _ENOUGH), _PIECE):
                    os.posix_fadvise(log.fileno(), offset, _PIECE, os.POSIX_FADV_WILLNEED)


Done = Callable[[Exception | None], None]

_GROUP = 256
"""Units in one transaction, so that none waits long for its neighbours."""

_UNITS = 100
_PERIOD = 0.1
_COMPANY = 8
_LINGER = 0.001
_LONG_LINGER = 0.003
"""Seconds. Once so many units were written in the last period, a group grows for `_LINGER` before it is written, or for
`_LONG_LINGER` when nobody hurries any of it; but not one with as many as the group before it, and `_COMPANY` at least.

A commit costs as much as ten statements, so many small groups are what makes a busy ledger expensive. Units are counted,
not commits, and over a period that ten callers who come at once do not fill: streams that bring 500 deltas a second are no
reason to make each of them wait, nor are those that begin and end in step.
"""

_UNFIT = (sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""Raised for a value that no column can hold, besides exceptions that are none of SQLite's: the fault of its unit."""


@dataclass(slots=True)
class _Unit:
    """`until` when, of the monotonic clock, it may wait for a database that is locked longer than the busy timeout."""

    steps: list[Step]
    done: Done
    until: float
    hurries: bool


class _StillLocked(Exception):
    """Of a unit that may wait: nothing has happened yet."""


class Writer:
    """`submit` and `close` belong to the thread of the event loop."""

    def __init__(self, path: str, busy_timeout_ms: int) -> None:
        self._path = path
        self._busy_timeout_ms = busy_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Unit | None] = queue.SimpleQueue()
        self._submitted: list[_Unit] = []
        """In this step of the event loop: they wake the thread once, and are one group."""
        self._closing = False
        self._drained = False
        self.in_trouble = False
        """The latest group could not be written."""
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def open(self) -> None:
        """Raises: LedgerUnavailable."""
        try:
            start("ledger-writer", self._run)
        except LedgerUnavailable:
            succeed(self._ended)
            raise
        try:
            await self._started
        except FAILURES as error:
            raise LedgerUnavailable(f"the database does not open for writing: {text_of(error)}") from error

    def submit(self, steps: list[Step], done: Done, patience: float = 0.0, *, hurries: bool = True) -> None:
        """Stores all steps or none; `done` is called in the event loop, in the order of submission.

        `patience` is in seconds; units with more of it may be told behind those with less, when the database is locked.
        What does not hurry may wait some milliseconds for company.
        """
        if self._closing:
            self._loop.call_soon(done, LedgerUnavailable("the ledger is closed"))
        else:
            if not self._submitted:
                self._loop.call_soon(self._hand_over)
            until = time.monotonic() + patience if patience else 0.0
            self._submitted.append(_Unit(steps, done, until, hurries))

    def _hand_over(self) -> None:
        submitted, self._submitted = self._submitted, []
        for one in submitted:
            self._queue.put(one)

    async def close(self) -> None:
        """Commits what was submitted before, calls its callbacks and ends the thread."""
        if not self._closing:
            self._closing = True
            self._hand_over()
            self._queue.put(None)
        await asyncio.shield(self._ended)

    # --- in the thread ---

    def _run(self) -> None:
        try:
            connection = connect(self._path, self._busy_timeout_ms)
        except FAILURES as error:
            tell(self._loop, _fail, self._started, error)
        else:
            tell(self._loop, succeed, self._started)
            with closing(connection):
                self._commit_groups(connection)
        tell(self._loop, succeed, self._ended)

    def _commit_groups(self, connection: sqlite3.Connection) -> None:
        written = deque([-math.inf] * _UNITS, _UNITS)
        kept: list[_Unit] = []
        enough = _COMPANY
        log = WarmLog(self._path)
        while kept or not self._drained:
            if not kept:
                first = self._queue.get()
                if first is None:
                    return
                kept = [first]
            units = [*kept, *self._waiting(_GROUP - len(kept))]
            if time.monotonic() - written[0] < _PERIOD and len(units) < enough and not self._drained:
                time.sleep(_LINGER if any(unit.hurries for unit in units) else _LONG_LINGER)
                units += self._waiting(_GROUP - len(units))
            outcomes = self._write(connection, units)
            written.extend([time.monotonic()] * len(units))
            enough = min(max(len(units), _COMPANY), _GROUP)
            pairs = list(zip(units, outcomes, strict=True))
            kept = [unit for unit, outcome in pairs if isinstance(outcome, _StillLocked)]
            told = [(unit.done, outcome) for unit, outcome in pairs if not isinstance(outcome, _StillLocked)]
            tell(self._loop, _deliver, told)
            log.keep()

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

    def _write(self, connection: sqlite3.Connection, units: list[_Unit]) -> list[Exception | None]:
        try:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except FAILURES:
                # Who came during the wait has waited as well: one timeout for all, not one after the other.
                units += self._waiting(self._queue.qsize())
                raise
            outcomes = _apply_all(connection, units)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except FAILURES as error:
            # Some failures have rolled back already, and a disk that is gone does not even do that.
            with suppress(*FAILURES):
                connection.execute("ROLLBACK")
            self.in_trouble = True
            return [self._lost(unit, error) for unit in units]
        self.in_trouble = False
        return outcomes

    def _lost(self, unit: _Unit, error: Exception) -> Exception:
        if trouble_of(error) == "locked" and not self._closing and time.monotonic() < unit.until:
            return _StillLocked()
        return _unavailable(error)


def _apply_all(connection: sqlite3.Connection, units: list[_Unit]) -> list[Exception | None]:
    cursor = connection.cursor()
    # As if all went well, as they nearly always do: a savepoint copies every page that its unit touches.
    for unit in units:
        outcome = _apply(cursor, unit.steps)
        if outcome is not None:
            cursor.execute("ROLLBACK")
            return [outcome] if len(units) == 1 else _apply_apart(cursor, units)
    return [None] * len(units)


def _apply_apart(cursor: sqlite3.Cursor, units: list[_Unit]) -> list[Exception | None]:
    """Each taken back alone."""
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
    """Why the unit has to be taken back, or None. Raises: sqlite3.Error, MemoryError when the database itself fails."""
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
        except Exception as error:  # noqa: BLE001  # whatever it is: the thread goes on for its neighbours
            return error
        if statement.rows is not None and touched != statement.rows:
            return Conflict(f"could not {statement.what}: {touched} rows instead of {statement.rows}")
    return None


def _unavailable(error: Exception) -> LedgerUnavailable:
    unavailable = LedgerUnavailable(f"the database did not commit: {text_of(error)}", trouble_of(error))
    unavailable.__cause__ = error
    return unavailable


# --- back in the event loop ---


def _deliver(outcomes: list[tuple[Done, Exception | None]]) -> None:
    for done, outcome in outcomes:
        try:
            done(outcome)
        except Exception as error:  # noqa: BLE001  # the loop's to report, as of any callback; the others hear all the same
            what = {"message": "a callback of the ledger failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(what)


def _fail(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
