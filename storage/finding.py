"""Reads of what an index finds, in the event loop itself. Law: it waits for nobody, and whoever finds the file slow leaves
it alone for a while.

Taking turns with another thread at the interpreter's lock costs many times what finding a row in memory does: 230 us of
GetTask's 330.
"""

import sqlite3
import time
from typing import Any

from storage.grouped import Row
from storage.troubles import FAILURES

_SLOW = 0.005
"""Seconds. Reading a large request takes the event loop as long; a file that is not in memory takes longer."""

_REST = 100
"""Times as long as it took the file is left alone: the event loop stands still for at most a hundredth of the time."""


class Finder:
    """Owns its connection, which does not wait for locks."""

    def __init__(self, connection: sqlite3.Connection, slow: float = _SLOW) -> None:
        self._connection = connection
        self._slow = slow
        self._again = 0.0

    def find(self, sql: str, values: dict[str, Any]) -> list[Row] | None:
        """All rows; None when somebody has to be asked who may wait, or who says what is wrong."""
        began = time.monotonic()
        if began < self._again:
            return None
        try:
            return self._connection.execute(sql, values).fetchall()
        except FAILURES:
            return None
        finally:
            ended = time.monotonic()
            if ended - began >= self._slow:
                self._again = ended + _REST * (ended - began)

    def close(self) -> None:
        self._connection.close()
