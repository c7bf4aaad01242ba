"""What a group touches besides the rows that its statements change. Law: no I/O; each kind of rows is locked in the order of
their ids.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from storage import compiled
from storage.postgres import sql
from storage.postgres.text import Call, Prepared, bound
from storage.statement import Step
from storage.write.writer import Unit

_LONGEST = 7000
"""Bytes of a notification; the server takes 8000."""

_OF_MORE_TASKS = frozenset(
    {
        compiled.REQUEST_CANCEL.name,
        compiled.DISPLACE.name,
        compiled.DELETE_CONTEXT.name,
        compiled.EXPIRE_CONTEXT.name,
    }
)
"""Statements that change tasks that they do not name."""

_LOOKING_FOR_EVENTS = frozenset({compiled.COMPLETE_PUSH.name, compiled.PUT_PUSH.name})
"""Statements behind which a delivery may wait for the next event."""

_APPENDING = frozenset({compiled.NEW_EVENTS.name})

_UNORDERED = frozenset({compiled.RENEW_LEASE.name})
"""Statements that wait for no row, and fit before and behind all others."""

_KEYS = ("thread", "task", "turn", "service_call", "tool_call")
"""Of what a turn is made of. A context is not among them: its agents do not wait for each other."""

_LOOK = bound(sql.NOTIFY, {"payload": ""})


def names(unit: Unit) -> set[tuple[str, str]]:
    """What the unit names of threads and turns. Units that name the same are written in their order."""
    return {
        (key, value) for _, values in _ordered(unit.steps) for key in _KEYS if isinstance(value := values.get(key), str)
    }


def _ordered(steps: Iterable[Step]) -> list[Step]:
    return [step for step in steps if step[0].name not in _UNORDERED]


def locks(steps: Sequence[Step]) -> list[Call]:
    """Of the rows that the steps name."""
    contexts, threads = set(), set()
    wholly: set[str] = set()
    taken: set[str] = set()
    for statement, values in _ordered(steps):
        context, thread = values.get("context"), values.get("thread")
        if isinstance(context, str):
            contexts.add(context)
            if thread is None:
                wholly.add(context)
        if isinstance(thread, str):
            threads.add(thread)
        if statement.name == compiled.TAKE_OVER_TURN.name:
            taken.add(str(values["turn"]))
    appended, watched = _tasks_of(steps, _APPENDING), _tasks_of(steps, _LOOKING_FOR_EVENTS)
    calls = []
    if contexts:
        calls.append(_of(sql.LOCK_CONTEXTS, contexts))
    if wholly:
        calls.append(_of(sql.LOCK_THREADS_AND_OF, threads, wholly))
    elif threads:
        calls.append(_of(sql.LOCK_THREADS, threads))
    if taken:
        calls.append(_of(sql.LOCK_LOGS_AND_OF, appended, taken))
    elif appended:
        calls.append(_of(sql.LOCK_LOGS, appended))
    if watched:
        calls.append(_of(sql.LOCK_TASKS, watched))
    return calls


def last(steps: Sequence[Step]) -> list[Call]:
    """What follows the steps."""
    tasks = _tasks_of(steps, _LOOKING_FOR_EVENTS)
    return [_of(sql.KEEP_DUE, tasks)] if tasks else []


def notification(units: Iterable[Unit]) -> list[Call]:
    """What other processes are told, in a transaction of its own: in that of the group it would wait for all others."""
    tasks: set[str] = set()
    for unit in units:
        for statement, values in unit.steps:
            if statement.name in _OF_MORE_TASKS:
                return [_LOOK]
            task = values.get("task")
            if isinstance(task, str):
                tasks.add(task)
    if not tasks:
        return []
    payload = msgspec.json.encode(sorted(tasks))
    return [bound(sql.NOTIFY, {"payload": payload.decode()})] if len(payload) < _LONGEST else [_LOOK]


def _tasks_of(steps: Sequence[Step], statements: Collection[str]) -> set[str]:
    """The tasks that these statements name."""
    return {str(values["task"]) for statement, values in steps if statement.name in statements}


def _of(text: Prepared, ids: Iterable[str], wholes: Iterable[str] = ()) -> Call:
    return bound(text, {"ids": _list(ids), "of": _list(wholes)})


def _list(ids: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(ids)).decode()
