"""Statements that export a context, with all its rows, and import it into another database. Law: an export reads all
columns except the columns in `NOT_EXPORTED`; an import writes the columns that an export reads."""

from typing import Any

from sqlalchemy import Column, FromClause, Select, Table, bindparam, insert, select

from storage.schema.tables import context, event, history_item, input_, service_call, task, thread, tool_call, turn
from storage.sql.fragments import ZERO, Write, given, matches, some

NOT_EXPORTED = {
    "context": {"tenant", "principal", "expires_at"},
    "thread": {"lease_holder", "lease_until", "adapter_secret"},
    "task": {"tenant", "principal"},
    "input": {"tenant", "principal", "agent", "preferences"},
    "turn": {"process", "cancel_asked", "tries", "trace"},
    "tool_call": {"runs_left", "standing"},
    "history_item": {"weight"},
}
"""Columns that belong to the caller, to a running process or to an unfinished turn, that follow from other columns, or that
are secret."""


TABLES = (context, thread, task, turn, input_, service_call, tool_call, history_item, event)


def columns(table: Table) -> tuple[Column[Any], ...]:
    """The exported columns of the table, in the order of the table."""
    return tuple(column for column in table.columns if column.name not in NOT_EXPORTED.get(table.name, ()))


_IN_CONTEXT = thread.c.context == bindparam("context")
_TURNS = thread.join(turn, turn.c.thread == thread.c.id)
_CALLS = _TURNS.join(service_call, service_call.c.turn == turn.c.id)
_TASK_IDS = select(turn.c.task).select_from(_TURNS).where(_IN_CONTEXT)


def _export(table: Table, source: FromClause, *order: str) -> Select[Any]:
    """The rows of the context, of a table that is part of `source`."""
    return select(*columns(table)).select_from(source).where(_IN_CONTEXT).order_by(*some(table, *order))


EXPORTED_CONTEXT = select(*columns(context)).where(
    matches(context, tenant="tenant", principal="principal", public_id="public_id")
)
EXPORTED_THREADS = _export(thread, thread, "agent", "epoch")
EXPORTED_TASKS = select(*columns(task)).where(task.c.id.in_(_TASK_IDS)).order_by(task.c.created_at, task.c.id)
EXPORTED_TURNS = _export(turn, _TURNS, "thread", "number")
EXPORTED_INPUTS = _export(input_, _TURNS.join(input_, input_.c.turn == turn.c.id), "turn", "ordinal")
EXPORTED_CALLS = _export(service_call, _CALLS, "turn", "round", "attempt")
_TOOL_CALLS = _CALLS.join(tool_call, tool_call.c.service_call == service_call.c.id)
EXPORTED_TOOL_CALLS = _export(tool_call, _TOOL_CALLS, "service_call", "sequence")
_ITEMS = thread.join(history_item, history_item.c.thread == thread.c.id)
EXPORTED_ITEMS = _export(history_item, _ITEMS, "thread", "position")
EXPORTED_EVENTS = select(*columns(event)).where(event.c.task.in_(_TASK_IDS)).order_by(event.c.task, event.c.last)


def _import(table: Table, **fixed: object) -> Write:
    values = {**given(*(column.name for column in columns(table))), **fixed}
    return Write(f"import the row of {table.name}", insert(table).inline().values(values))


_OWNED = given("tenant", "principal")

IMPORT_CONTEXT = _import(context, **_OWNED)
IMPORT_THREAD = _import(thread)
IMPORT_TASK = _import(task, **_OWNED)
IMPORT_TURN = _import(turn)
IMPORT_INPUT = _import(input_, **_OWNED, agent=bindparam("agent"))
IMPORT_CALL = _import(service_call)
IMPORT_TOOL_CALL = _import(tool_call, runs_left=ZERO)
IMPORT_ITEM = _import(history_item, weight=bindparam("weight"))
IMPORT_EVENTS = _import(event)
