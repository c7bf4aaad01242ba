"""A page of tasks, read in the thread of a reader. Law: a page has at least one task, what does not fit into it is not read,
and a task that cannot be read hides no other.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any

import msgspec

from gateway.ledger.errors import CorruptRecord
from gateway.ledger.tasks import ListedTask, PageLimits, TaskPage, TaskRecord, TurnRecord
from storage import compiled
from storage.errors import FAILURES, TextTooLong, read_failure
from storage.read import rows as records
from storage.read.inline import Row

_Found = tuple[TaskRecord, int, CorruptRecord | None]
"""A task, the size of its row, and why a part of the row cannot be read."""

_Rows = list[Row]


def task_page(
    queries: tuple[str, str], values: dict[str, Any], limits: PageLimits, connection: sqlite3.Connection
) -> TaskPage:
    """The page of these queries, which give its tasks and the number of all tasks. The parameter `limit` is one task more
    than the page may have.

    Raises: sqlite3.Error, MemoryError.
    """
    page, count = queries
    found, more = _tasks(connection, page, values, limits)
    [(total,)] = connection.execute(count, values).fetchall()
    latest = _latest_events(connection, found) if limits.numbers else {}
    listed = _with_turns(connection, found, latest, limits)
    return TaskPage(tuple(listed), total, more or len(listed) < len(found))


def _latest_events(connection: sqlite3.Connection, found: list[_Found]) -> dict[str, int]:
    tasks = msgspec.json.encode([record.id for record, _, _ in found]).decode()
    return dict(connection.execute(compiled.LATEST_EVENTS, {"tasks": tasks}).fetchall())


def size_of(*texts: str | None) -> int:
    """The bytes of these texts."""
    return sum([len(text) if text.isascii() else len(text.encode()) for text in texts if text])


_STATUS_MESSAGE = TaskRecord.__struct_fields__.index("status_message")


def turn_size(row: Sequence[Any]) -> int:
    """The bytes that a row of a turn takes: its message, and what both sides said and made."""
    return size_of(row[1], row[-3], row[-2])


@cache
def turns_of(count: int, *, history: bool, artifacts: bool) -> str:
    """The query of the turns of so many tasks."""
    parameters = ", ".join(f":task_{index}" for index in range(count))
    sql: str = compiled.TURNS[history, artifacts]
    return sql.replace(":task_0", parameters)


def _tasks(
    connection: sqlite3.Connection, sql: str, values: dict[str, Any], limits: PageLimits
) -> tuple[list[_Found], bool]:
    """The tasks, and whether there are more of them."""
    found: list[_Found] = []
    used = 0
    with closing(connection.execute(sql, values)) as rows:
        for row in rows:
            if len(found) == limits.tasks or used >= limits.size:
                return found, True
            size = size_of(row[_STATUS_MESSAGE])
            used += size
            found.append(_task(row, size))
    return found, False


def _task(row: Row, size: int) -> _Found:
    try:
        return records.task(row), size, None
    except CorruptRecord as error:
        return records.task([*row[:5], None, *row[6:]]), size, error


def _with_turns(
    connection: sqlite3.Connection, found: list[_Found], latest: Mapping[str, int], limits: PageLimits
) -> list[ListedTask]:
    """As many of the tasks as fit, in their order."""
    room = limits.size - sum(size for _, size, _ in found)
    at_once = _rows_of_all(connection, [record.id for record, _, _ in found], limits, room)
    listed: list[ListedTask] = []
    used = 0
    for record, size, corrupt in found:
        if used >= limits.size:
            break
        rows = at_once[record.id] if at_once is not None else _rows(connection, record.id, limits)
        turns = corrupt or (rows if isinstance(rows, CorruptRecord) else _turns(record.id, rows))
        whole = size + (0 if isinstance(rows, CorruptRecord) else sum(map(turn_size, rows)))
        used += whole
        # The events of an ended task may have been deleted.
        listed.append(ListedTask(record, turns, whole, max(record.last_event, latest.get(record.id, 0))))
    return listed


def _rows_of_all(
    connection: sqlite3.Connection, tasks: list[str], limits: PageLimits, room: int
) -> dict[str, _Rows] | None:
    """The rows of the turns of all tasks by one query, which is the quickest way, and may read more history than is asked
    for; None when they take more than `room` bytes, or when one cannot be read."""
    if not tasks:
        return {}
    found: dict[str, _Rows] = {task: [] for task in tasks}
    values = {f"task_{index}": task for index, task in enumerate(tasks)}
    longest = connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(1, min(room, longest)))
    try:
        with closing(connection.execute(_turns_of(len(tasks), limits), values)) as rows:
            for row in rows:
                room -= turn_size(row)
                if room < 0:
                    return None
                found[row[-1]].append(row)
    except FAILURES as error:
        if not isinstance(read_failure(error), CorruptRecord | TextTooLong):
            raise
        return None
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
    return found


def _rows(connection: sqlite3.Connection, task: str, limits: PageLimits) -> _Rows | CorruptRecord:
    try:
        if not limits.history:
            return connection.execute(_turns_of(1, limits), {"task_0": task}).fetchall()
        recent = recent_values(task, limits.history)
        return connection.execute(compiled.RECENT_TURNS[limits.artifacts], recent).fetchall()
    except FAILURES as error:
        return _corrupt(error)


def _turns_of(count: int, limits: PageLimits) -> str:
    return turns_of(count, history=limits.history != 0, artifacts=limits.artifacts)


def recent_values(task: str, history: int) -> dict[str, Any]:
    """The parameters of a query for the latest turns of a task."""
    return {"task": task, "history": min(history, _MOST), "skip": min(max(history - 1, 0), _MOST)}


_MOST = 2**31
"""More turns than any task has."""


def _turns(task: str, rows: _Rows) -> tuple[TurnRecord, ...] | CorruptRecord:
    try:
        return records.turns(task, rows)
    except CorruptRecord as error:
        return error


def _corrupt(error: Exception) -> CorruptRecord:
    """Raises: the error itself when it is of the database, not of a row."""
    failure = read_failure(error)
    if not isinstance(failure, CorruptRecord):
        raise error
    return failure
