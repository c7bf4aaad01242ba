"""Reads of a few indexed rows, in the event loop itself. Law: never waits for a lock; rests after a slow read.

The switch to another thread and back, at the interpreter's lock, costs many times what finding a row in memory costs: 230 us
of GetTask's 330.
"""

import sqlite3
import time
from typing import Any

from storage.errors import FAILURES
from storage.statement import Query, Row

_SLOW = 0.005
"""Seconds. Reading a large request occupies the event loop as long; a file that is not in memory takes longer."""

_REST = 100
"""A rest lasts so many times as long as the slow read: the event loop is blocked for at most a hundredth of the time."""


class InlineReader:
    """Owns its connection, which does not wait for locks."""

    def __init__(self, connection: sqlite3.Connection, slow: float = _SLOW) -> None:
        self._connection = connection
        self._slow = slow
        self._rests_until = 0.0

    def fetch(self, query: Query, values: dict[str, Any]) -> list[Row] | None:
        """All rows; None when another reader has to be asked, which may wait and reports failures."""
        began = time.monotonic()
        if began < self._rests_until:
            return None
        try:
            return self._connection.execute(query.sql, values).fetchall()
        except FAILURES:
            return None
        finally:
            ended = time.monotonic()
            if ended - began >= self._slow:
                self._rests_until = ended + _REST * (ended - began)

    def close(self) -> None:
        self._connection.close()
