"""What statements and queries are made of. Law: only `storage.sql.compile`, migrations and tests come here; who runs them
reads the text in `storage.compiled`."""

from sqlalchemy import Column, and_, bindparam, exists, func, literal_column, or_, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import ClauseElement, ColumnElement

from gateway.ledger.leases import LONGEST_LEASE
from storage.schema.tables import (
    ApiKey,
    Context,
    DeleteJob,
    Event,
    HistoryItem,
    Input,
    Process,
    PushConfig,
    Secret,
    ServiceCall,
    Task,
    Thread,
    ToolCall,
    Turn,
    table,
)

context, thread, task, turn = table(Context), table(Thread), table(Task), table(Turn)
input_, service_call, tool_call = table(Input), table(ServiceCall), table(ToolCall)
history_item, event, secret, delete_job = table(HistoryItem), table(Event), table(Secret), table(DeleteJob)
process, push_config = table(Process), table(PushConfig)
api_key = table(ApiKey)

_DIALECT = sqlite.dialect(paramstyle="named")


def compiled(clause: ClauseElement) -> str:
    """SQL whose parameters are `:name`."""
    return str(clause.compile(dialect=_DIALECT))


def given(*names: str) -> dict[str, ColumnElement[object]]:
    """Columns that take the parameter of their own name."""
    return {name: bindparam(name) for name in names}


def word(value: str) -> ColumnElement[str]:
    """A constant in the SQL itself: an index with a condition is only used where the planner sees the value."""
    return literal_column(f"'{value}'")


task_columns = (
    task.c.id,
    task.c.context,
    context.c.public_id,
    task.c.agent,
    task.c.state,
    task.c.status_message,
    task.c.status_at,
    task.c.last_event,
    task.c.visible,
)
"""In the order of TaskRecord."""

tool_call_columns = (
    tool_call.c.id,
    tool_call.c.service_call,
    service_call.c.round,
    service_call.c.ended_at,
    tool_call.c.sequence,
    tool_call.c.external_id,
    tool_call.c.name,
    tool_call.c.arguments,
    tool_call.c.executor,
    tool_call.c.status,
    tool_call.c.server,
    tool_call.c.runs_left,
)
"""In the order of ToolCallRecord."""


def equals(column: Column[object], parameter: str) -> ColumnElement[bool]:
    return column == bindparam(parameter)


def lapsed(column: Column[int | None] | Column[int]) -> ColumnElement[bool]:
    """It ran out before `now`, or cannot have been written by this clock."""
    now: ColumnElement[int] = bindparam("now")
    return or_(column < now, column > now + literal_column(str(LONGEST_LEASE)))


def next_number(column: Column[object], of: ColumnElement[bool]) -> ColumnElement[object]:
    """The number behind the largest one that is there."""
    largest = func.coalesce(func.max(column), literal_column("0"))
    return select(largest + literal_column("1")).where(of).scalar_subquery()


next_position = next_number(history_item.c.position, equals(history_item.c.thread, "thread"))
"""Of an item that is appended to its thread."""

is_displaced = and_(turn.c.displaced == literal_column("1"), turn.c.ended_at.is_not(None))
"""Of a turn: it has ended and is no part of the conversation, because a later message took its place."""

thread_in_generation = exists(
    select(literal_column("1"))
    .select_from(thread)
    .where(equals(thread.c.id, "thread"), equals(thread.c.generation, "generation"))
)
"""Nobody has moved the thread on since it was read."""
