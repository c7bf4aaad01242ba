"""The commit points by which something ends, as statements in order. Law: as in `units`."""

from gateway.commits.forgetting import (
    DeleteContext,
    EndDeletion,
    ExpireContext,
    ExpireTasks,
    MoveDeletion,
    PurgeContext,
)
from storage import compiled as do
from storage.statement import Statement, Step, Value

TURNS_AT_ONCE = 100
ITEMS_AT_ONCE = 1000
"""Rows that one piece of a purge takes at most: few enough that a turn that commits behind it does not notice."""

_PURGE: tuple[Statement, ...] = (
    do.PURGE_ITEMS,
    do.FORGET_HANDLES_OUT,
    do.FORGET_HANDLES_PENDING,
    do.PURGE_TOOL_CALLS,
    do.PURGE_CALLS,
    do.PURGE_INPUTS,
    do.LIST_TASKS,
    do.PURGE_TURNS,
    do.PURGE_EVENTS,
    do.PURGE_TASKS,
)

Ending = DeleteContext | ExpireContext | PurgeContext | ExpireTasks | MoveDeletion | EndDeletion


def ending(point: Ending) -> list[Step]:
    match point:
        case DeleteContext():
            return _delete_context(point)
        case ExpireContext():
            return _expire_context(point)
        case PurgeContext():
            return _purge(point.context, point.now)
        case ExpireTasks():
            return [step for task in point.tasks for step in _expire_task(task, records=point.records)]
        case MoveDeletion():
            moved: dict[str, Value] = {
                "job": point.job,
                "due_at": point.due_at,
                "until": point.until,
                "attempts": point.attempts,
            }
            return [(do.MOVE_DELETION, moved)]
        case EndDeletion():
            return [(do.END_DELETION, {"job": point.job, "due_at": point.due_at})]


def _delete_context(point: DeleteContext) -> list[Step]:
    values: dict[str, Value] = {
        "tenant": point.caller.tenant,
        "principal": point.caller.principal,
        "context": point.context,
        "now": point.now,
    }
    return [
        (do.BURY_CONTEXT, values),
        *_bury(point.context, point.now, "deleted"),
        *_purge(point.context, point.now),
    ]


def _expire_context(point: ExpireContext) -> list[Step]:
    values: dict[str, Value] = {"context": point.context, "idle_before": point.idle_before}
    return [(do.EXPIRE_CONTEXT, values), *_bury(point.context, point.now, "expired")]


def _bury(context: str, now: int, state: str) -> list[Step]:
    values: dict[str, Value] = {"context": context, "now": now, "state": state}
    return [(do.FORGET_HANDLES, values), (do.BURY_THREADS, values)]


def _purge(context: str, now: int) -> list[Step]:
    values: dict[str, Value] = {
        "context": context,
        "now": now,
        "limit": TURNS_AT_ONCE,
        "item_limit": ITEMS_AT_ONCE,
    }
    return [(statement, values) for statement in _PURGE]


def _expire_task(task: str, *, records: bool) -> list[Step]:
    values: dict[str, Value] = {"task": task}
    steps: list[Step] = [(do.DROP_EVENTS, values)]
    if records:
        steps += [(statement, values) for statement in (do.HIDE_TASK, do.CLEAR_TURNS, do.FREE_KEYS, do.FORGET_PUSHES)]
    return steps
