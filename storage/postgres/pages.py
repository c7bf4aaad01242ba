"""A page of tasks. Law: as in `storage.read.pages`."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from gateway.ledger.tasks import ListedTask, PageLimits, TaskPage
from storage import compiled
from storage.postgres import sql
from storage.postgres.errors import Failure
from storage.postgres.session import Session
from storage.postgres.text import Call, bound
from storage.read import rows as records
from storage.read.pages import MESSAGE
from storage.read.queries import recent_values
from storage.statement import Query, Row

_TASKS_AT_ONCE = 32
"""Rows of tasks that are read before their size is looked at."""

_TURNS_AT_ONCE = 8
"""Tasks whose turns are read before their size is looked at."""


def task_page(filters: tuple[bool, ...], values: dict[str, Any], limits: PageLimits, session: Session) -> TaskPage:
    """The page of a list with these filters. The value of `limit` is one task more than the page may have.

    Raises: Failure, Lost.
    """
    page, count = compiled.LISTINGS[filters]
    found, more = _tasks(session, page, values, limits)
    listed: list[ListedTask] = []
    used = 0
    for row, of_turns in _with_turns(session, found, limits):
        if used >= limits.size:
            more = True
            break
        each = records.listed(row, values["agent"], of_turns)
        used += each.size
        if used > limits.size and listed:
            more = True
            break
        listed.append(each)
    [(total,)] = session.one(_call(count, values))
    return TaskPage(tuple(_numbered(session, listed) if limits.numbers else listed), total, more)


def _tasks(session: Session, page: Query, values: dict[str, Any], limits: PageLimits) -> tuple[list[Row], bool]:
    """The rows of the tasks, and whether there are more of them."""
    session.one(_cursor(page, values))
    found: list[Row] = []
    used = 0
    while rows := session.one(sql.NEXT_TASKS):
        for row in rows:
            if len(found) == limits.tasks or used >= limits.size:
                return found, True
            used += len(row[MESSAGE] or b"")
            found.append(row)
    return found, False


def _with_turns(session: Session, found: list[Row], limits: PageLimits) -> Iterator[tuple[Row, list[bytes]]]:
    tasks = iter(found)
    while some := [*islice(tasks, _TURNS_AT_ONCE)]:
        for row, answer in zip(some, session.run([_turns(row[0], limits) for row in some]), strict=True):
            if isinstance(answer, Failure):
                raise answer
            yield row, [turn for (turn,) in answer.rows]


def _turns(task: str, limits: PageLimits) -> Call:
    asked = {"with_artifacts": int(limits.artifacts)}
    if limits.history:
        return _call(compiled.RECENT_TURNS, {**recent_values(task, limits.history), **asked})
    return _call(compiled.TURNS, {"task": task, "with_history": int(limits.history is None), **asked})


def _numbered(session: Session, listed: list[ListedTask]) -> list[ListedTask]:
    asked = msgspec.json.encode([each.record.id for each in listed]).decode()
    latest: dict[str, int] = dict(session.one(_call(compiled.LATEST_EVENTS, {"tasks": asked})))
    # The events of an ended task may have been deleted.
    return [replace(each, last_event=max(each.last_event, latest.get(each.record.id, 0))) for each in listed]


def _call(query: Query, values: dict[str, Any]) -> Call:
    return bound(sql.PREPARED[query.name], values)


def _cursor(page: Query, values: dict[str, Any]) -> Call:
    return bound(sql.cursor_of(page.name), values)
