"""A page of the log of a task, read in the thread of a reader. Law: a page ends with the row that makes it full, behind which
nothing is read.
"""

import sqlite3
from contextlib import closing
from typing import Any

from storage.compiled import EVENTS
from storage.statement import Row


def log_page(values: dict[str, Any], connection: sqlite3.Connection) -> list[Row]:
    """The rows of `EVENTS` until the events behind `after` have `size` bytes. Raises: sqlite3.Error, MemoryError."""
    after, room = values["after"], values["size"]
    page: list[Row] = []
    with closing(connection.execute(EVENTS.sql, values)) as rows:
        for row in rows:
            page.append(row)
            first, last, payload = row
            # A row that begins before the page counts for nothing: a part of it is given.
            if first > after:
                room -= len(payload if payload.isascii() else payload.encode()) - (last - first)
            if room <= 0:
                break
    return page
