"""The queries of what a turn has done and when, for its spans. Law: as in `sql/tasks.py`."""

from sqlalchemy import bindparam, or_, select

from storage.schema.tables import service_call, tool_call, turn
from storage.sql.fragments import limited, some, word

RECORDED_TURN = select(*some(turn, "trace", "accepted_at", "ended_at", "process", "status", "failure_class")).where(
    turn.c.id == bindparam("turn")
)

RECORDED_CALLS = (
    select(*some(service_call, "round", "attempt", "error_class", "prepared_at", "first_at", "ended_at", "usage"))
    .where(service_call.c.turn == bindparam("turn"))
    .order_by(service_call.c.round, service_call.c.attempt)
)

RECORDED_TOOLS = (
    select(*some(tool_call, "id", "name", "server", "status", "started_at", "ended_at"))
    .select_from(service_call.join(tool_call, tool_call.c.service_call == service_call.c.id))
    .where(
        service_call.c.turn == bindparam("turn"),
        tool_call.c.executor == word("gateway"),
        tool_call.c.started_at.is_not(None),
    )
    .order_by(tool_call.c.started_at, tool_call.c.id)
)

TURN_OF_EVENT = limited(
    select(*some(turn, "id", "trace"))
    .where(turn.c.task == bindparam("task"), or_(turn.c.last_event.is_(None), turn.c.last_event >= bindparam("number")))
    .order_by(turn.c.number)
)
"""The turn to which an event of a task belongs. Turns of a task follow one another."""
