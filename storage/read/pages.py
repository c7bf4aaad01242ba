"""A page of tasks, read in the thread of a reader. Law: a page has at least one task, it ends before the first that does not
fit, behind which nothing is read, and a task that cannot be read hides no other.
"""

import sqlite3
from contextlib import closing
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.ledger.tasks import ListedTask, PageLimits, TaskPage
from storage import compiled
from storage.errors import FAILURES, TextTooLong, read_failure
from storage.read import rows as records
from storage.read.queries import recent_values
from storage.statement import Query, Row

_Rows = list[bytes]

MESSAGE = 4
"""The column of a task's message."""


def task_page(
    filters: tuple[bool, ...], values: dict[str, Any], limits: PageLimits, connection: sqlite3.Connection
) -> TaskPage:
    """The page of a list with these filters. The value of `limit` is one task more than the page may have.

    Raises: sqlite3.Error, MemoryError.
    """
    page, count = compiled.LISTINGS[filters]
    whole = compiled.LISTINGS_WITH_TURNS[*filters, limits.history != 0, limits.artifacts]
    found = _at_once(connection, whole, values, limits)
    listed, more = _one_by_one(connection, page, values, limits) if found is None else found
    [(total,)] = connection.execute(count.sql, values).fetchall()
    return TaskPage(tuple(_numbered(connection, listed) if limits.numbers else listed), total, more)


def _numbered(connection: sqlite3.Connection, listed: list[ListedTask]) -> list[ListedTask]:
    asked = msgspec.json.encode([each.record.id for each in listed]).decode()
    latest = dict(connection.execute(compiled.LATEST_EVENTS.sql, {"tasks": asked}).fetchall())
    # The events of an ended task may have been deleted.
    return [replace(each, last_event=max(each.last_event, latest.get(each.record.id, 0))) for each in listed]


def _at_once(
    connection: sqlite3.Connection, query: Query, values: dict[str, Any], limits: PageLimits
) -> tuple[list[ListedTask], bool] | None:
    """The tasks, and whether there are more of them, by one query, which is the quickest way, and may read more history than is
    asked for; None when that takes more than a page may."""
    found: list[tuple[Row, _Rows]] = []
    of_task: _Rows = []
    latest, more, room = None, False, limits.size
    longest = connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(1, min(room, longest)))
    try:
        with closing(connection.execute(query.sql, values)) as rows:
            for row in rows:
                task, message, turn = row[0], row[MESSAGE], row[-1]
                if task != latest:
                    if len(found) == limits.tasks:
                        more = True
                        break
                    latest, of_task = task, []
                    found.append((row, of_task))
                if turn is None:  # longer than a text may be here
                    return None
                room -= len(turn) + len(message) if message else len(turn)
                if room < 0:
                    return None
                of_task.append(turn)
    except FAILURES as error:
        if not isinstance(read_failure(error), TextTooLong):
            raise
        return None
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
    agent = values["agent"]
    return [records.listed(row, agent, of_task) for row, of_task in found], more


def _one_by_one(
    connection: sqlite3.Connection, query: Query, values: dict[str, Any], limits: PageLimits
) -> tuple[list[ListedTask], bool]:
    """As many of the tasks as fit, by a query for each, and whether there are more of them."""
    found, more = _tasks(connection, query, values, limits)
    listed: list[ListedTask] = []
    used = 0
    for row in found:
        if used >= limits.size:
            return listed, True
        each = records.listed(row, values["agent"], _turns(connection, row[0], limits))
        used += each.size
        if used > limits.size and listed:
            return listed, True
        listed.append(each)
    return listed, more


def _tasks(
    connection: sqlite3.Connection, query: Query, values: dict[str, Any], limits: PageLimits
) -> tuple[list[Row], bool]:
    """The rows of the tasks, and whether there are more of them."""
    found: list[Row] = []
    used = 0
    with closing(connection.execute(query.sql, values)) as rows:
        for row in rows:
            if len(found) == limits.tasks or used >= limits.size:
                return found, True
            used += len(row[MESSAGE] or b"")
            found.append(row)
    return found, False


def _turns(connection: sqlite3.Connection, task: str, limits: PageLimits) -> _Rows:
    """The rows of the turns of one task."""
    if limits.history:
        query, values = compiled.RECENT_TURNS, recent_values(task, limits.history)
    else:
        query, values = compiled.TURNS, {"task": task, "with_history": int(limits.history is None)}
    return [
        row[-1] for row in connection.execute(query.sql, {**values, "with_artifacts": int(limits.artifacts)}).fetchall()
    ]
