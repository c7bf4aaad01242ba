"""Reads of a few indexed rows, in the event loop itself. Law: never waits for a lock; rests after a slow read; no snapshot is
older than a commit that was answered before the read.

The switch to another thread and back, at the interpreter's lock, costs many times what finding a row in memory costs: 230 us
of GetTask's 330.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from storage.errors import FAILURES
from storage.statement import Query, Row

_SLOW = 0.005
"""Seconds. Reading a large request occupies the event loop as long; a file that is not in memory takes longer."""

_REST = 100
"""A rest lasts so many times as long as the slow read: the event loop is blocked for at most a hundredth of the time."""


class InlineReader:
    """Owns its connection, which does not wait for locks. The reads of one step of the event loop share a snapshot, because its
    locks are a third of what a read costs; for one read alone, to begin and to end it by hand would cost more. So a step has
    such a snapshot when the step with reads before it had several."""

    def __init__(
        self, connection: sqlite3.Connection, call_soon: Callable[[Callable[[], None]], object], slow: float = _SLOW
    ) -> None:
        """`call_soon` is that of the event loop."""
        self._connection = connection
        self._call_soon = call_soon
        self._slow = slow
        self._rests_until = 0.0
        self._reads = 0
        self._shares = False

    def fetch(self, query: Query, values: dict[str, Any]) -> list[Row] | None:
        """All rows; None when another reader has to be asked, which may wait and reports failures."""
        began = time.monotonic()
        if began < self._rests_until:
            return None
        try:
            self._reads += 1
            if self._reads == 1:
                self._begin()
            return self._connection.execute(query.sql, values).fetchall()
        except FAILURES:
            return None
        finally:
            ended = time.monotonic()
            if ended - began >= self._slow:
                self._rests_until = ended + _REST * (ended - began)

    def _begin(self) -> None:
        """Raises: sqlite3.Error, MemoryError."""
        # First: a commit that the snapshot lacks is answered behind the end of the step.
        self._call_soon(self._end)
        if self._connection.in_transaction:  # the last COMMIT has failed
            self._connection.execute("ROLLBACK")
        if self._shares:
            self._connection.execute("BEGIN")

    def _end(self) -> None:
        self._shares, self._reads = self._reads > 1, 0
        with suppress(*FAILURES):
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
