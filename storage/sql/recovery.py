"""The queries of running and resuming turns: turns that have not ended, their calls, what other processes did. Law: as in
`sql/tasks.py`."""

from sqlalchemy import and_, bindparam, func, not_, or_, select, text

from gateway.ledger.calls import RESTARTED
from storage.schema.conditions import TURN_CANCEL_ASKED, TURN_UNFINISHED
from storage.schema.tables import context, event, input_, process, service_call, task, thread, tool_call, turn
from storage.sql.fragments import (
    ZERO,
    is_displaced,
    json_values,
    lapsed,
    limited,
    some,
    task_columns,
    there_is,
    tool_columns,
    turn_base,
    word,
)

_FREE = or_(thread.c.lease_holder.is_(None), lapsed(thread.c.lease_until))

_ALIVE = there_is(process, process.c.id == turn.c.process, ~lapsed(process.c.alive_until))

_LEFT = or_(
    turn.c.process == bindparam("process"),
    and_(turn.c.status == word("running"), or_(_FREE, thread.c.lease_holder != turn.c.process)),
    and_(turn.c.status == word("accepted"), ~_ALIVE),
)
"""The turns of the process that asks, or of no living process: a running turn belongs to the holder of the lease, a
queued turn to the process that has accepted it."""

# The result has no order: with an order, the planner would read all turns by number instead of the index of unfinished
# turns.
UNFINISHED_TURNS = (
    select(
        *some(turn, "number", "id", "thread"),
        thread.c.generation,
        and_(turn.c.status == word("running"), _FREE).label("expired"),
        (turn.c.status == word("accepted")).label("waits"),
        *some(turn, "process", "cancel_asked", "tries"),
        *some(task, "tenant", "principal"),
        *task_columns,
    )
    .select_from(
        turn.join(thread, thread.c.id == turn.c.thread)
        .join(task, task.c.id == turn.c.task)
        .join(context, context.c.id == task.c.context)
    )
    .where(text(TURN_UNFINISHED), _LEFT)
)

OPEN_TURNS = (
    select(turn.c.id, turn.c.task, turn.c.thread, turn.c.status == word("waiting"))
    .select_from(turn.join(thread, thread.c.id == turn.c.thread))
    .where(turn.c.ended_at.is_(None), thread.c.context == bindparam("context"))
)

OPEN_TOOL_CALLS = (
    select(*tool_columns)
    .select_from(service_call.join(tool_call, tool_call.c.service_call == service_call.c.id))
    .where(service_call.c.turn == bindparam("turn"), tool_call.c.outcome.is_(None))
    .order_by(service_call.c.round, tool_call.c.sequence)
)

UNREPORTED_TOOL_CALLS = (
    select(*tool_columns)
    .select_from(service_call.join(tool_call, tool_call.c.service_call == service_call.c.id))
    .where(service_call.c.turn == bindparam("turn"), tool_call.c.status == word("external"))
    .order_by(service_call.c.round, tool_call.c.sequence)
)

EARLIER_TOOL_CALL = limited(
    select(tool_call.c.name, tool_call.c.arguments, tool_call.c.status, tool_call.c.outcome)
    .select_from(
        turn.join(service_call, service_call.c.turn == turn.c.id).join(
            tool_call, tool_call.c.service_call == service_call.c.id
        )
    )
    .where(
        turn.c.thread == bindparam("thread"),
        tool_call.c.external_id == bindparam("external_id"),
        tool_call.c.id != bindparam("than"),
        tool_call.c.outcome.is_not(None),
        not_(is_displaced),
    )
    .order_by(turn.c.number.desc(), service_call.c.round.desc(), tool_call.c.sequence.desc())
)

_FIRST_CALL = service_call.alias("first_call")

_AGAIN = service_call.alias("again")

LATEST_CALL = limited(
    select(
        *some(service_call, "id", "round", "attempt", "status", "pending_handle"),
        _FIRST_CALL.c.handle_in,
        select(func.count())
        .select_from(_AGAIN)
        .where(_AGAIN.c.turn == bindparam("turn"), _AGAIN.c.error_class == word(RESTARTED))
        .scalar_subquery(),
        there_is(tool_call, tool_call.c.service_call == service_call.c.id, tool_call.c.executor != word("backend")),
        service_call.c.run,
    )
    .select_from(
        service_call.join(
            _FIRST_CALL,
            and_(_FIRST_CALL.c.turn == service_call.c.turn, _FIRST_CALL.c.round == ZERO, _FIRST_CALL.c.attempt == ZERO),
        )
    )
    .where(service_call.c.turn == bindparam("turn"))
    .order_by(service_call.c.round.desc(), service_call.c.attempt.desc())
)

PREFERENCES = select(input_.c.preferences).where(input_.c.turn == bindparam("turn"), input_.c.ordinal == ZERO)

PROCESS_OF = select(turn.c.process).where(turn.c.id == bindparam("turn"), turn.c.ended_at.is_(None))

UNKNOWN_CALL = limited(
    select(*some(service_call, "id", "turn", "round", "handle_in", "pending_handle"), is_displaced, service_call.c.run)
    .select_from(turn.join(service_call, service_call.c.turn == turn.c.id))
    .where(turn.c.thread == bindparam("thread"), service_call.c.status == word("unknown"))
    .order_by(turn.c.number.desc(), service_call.c.round.desc(), service_call.c.attempt.desc())
)

TURN_BASE = turn_base()

CANCEL_REQUESTS = select(turn.c.task).where(text(TURN_CANCEL_ASKED), turn.c.process == bindparam("process"))

LATEST_EVENTS = select(
    task.c.id, select(func.coalesce(func.max(event.c.last), ZERO)).where(event.c.task == task.c.id).scalar_subquery()
).where(task.c.id.in_(json_values("tasks", "asked")))
