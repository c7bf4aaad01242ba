"""The queries of contexts and tasks as callers see them. Law, of all queries: an index finds rows whose number grows."""

from typing import Any

from sqlalchemy import Select, and_, bindparam, case, func, literal_column, or_, select, text, tuple_
from sqlalchemy.sql.expression import ColumnElement

from gateway.ledger.leases import TRIES
from storage.schema.conditions import ITEM_REFUSED, task_waiting, thread_live
from storage.schema.tables import context, event, history_item, input_, service_call, task, thread, turn
from storage.sql.fragments import ONE, ZERO, joined, limited, matches, some, task_columns, word

_THREAD = (
    *some(thread, "id", "context", "agent", "epoch", "storage_owner", "handle_kind", "handle", "generation"),
    thread.c.adapter_state,
    (thread.c.state == word("lost")).label("lost"),
    thread.c.state_version,
    (thread.c.state == word("unsynced")).label("unsynced"),
    thread.c.adapter_secret,
)
"""The columns of ThreadRecord, in its order."""

_LIVING = context.c.state.in_([word("open"), word("closed")])
"""Tombstones are about to be purged."""

_BELONGS = matches(task, tenant="tenant", principal="principal")

_OF_AGENT = task.c.agent == bindparam("agent")

_CONTEXT_BELONGS = matches(context, tenant="tenant", principal="principal")

_TASK_IN_CONTEXT = task.join(context, context.c.id == task.c.context)

_WAITS = (
    select(turn.c.task)
    .where(turn.c.thread == thread.c.id, turn.c.ended_at.is_(None), turn.c.status == word("waiting"))
    .scalar_subquery()
)

_QUARANTINED = turn.c.tries >= literal_column(str(TRIES))

_STUCK = limited(
    select(turn.c.task).where(turn.c.thread == thread.c.id, turn.c.ended_at.is_(None), _QUARANTINED)
).scalar_subquery()

CONTEXT = (
    select(context.c.id, context.c.public_id, context.c.state, _WAITS, _STUCK, *_THREAD)
    .select_from(
        context.outerjoin(
            thread,
            and_(thread.c.context == context.c.id, thread.c.agent == bindparam("agent"), text(thread_live("thread."))),
        )
    )
    .where(_CONTEXT_BELONGS, context.c.public_id == bindparam("public_id"))
)

THREAD = select(*_THREAD).where(thread.c.id == bindparam("thread"))

TASK = (
    select(*task_columns)
    .select_from(_TASK_IN_CONTEXT)
    .where(task.c.id == bindparam("task"), _BELONGS, _OF_AGENT, _LIVING)
)

WAITING_TASKS = (
    select(*task_columns)
    .select_from(_TASK_IN_CONTEXT)
    .where(task.c.context == bindparam("context"), text(f"visible = 1 AND {task_waiting('task.')}"))
)

REPLAY = (
    select(turn.c.task, input_.c.digest)
    .select_from(input_.join(turn, turn.c.id == input_.c.turn))
    .where(matches(input_, tenant="tenant", principal="principal", agent="agent", key_kind="key_kind", key="key"))
)

_REPORTS = (
    select(joined(service_call.c.usage))
    .where(
        service_call.c.turn == turn.c.id,
        or_(turn.c.ended_at.is_(None), service_call.c.ended_at <= turn.c.ended_at),
    )
    .scalar_subquery()
)
"""What the backend reported of the tokens of a turn: the report of each service call, with commas between them.

A call whose end was found out after the turn had ended does not count: a task that has ended stays as it is.
"""

_REFUSAL = case(
    (and_(history_item.c.sent_in.is_not(None), history_item.c.replayable == ZERO), literal_column("4")),
    (history_item.c.kind == word("output"), literal_column("2")),
    else_=ONE,
)
_REFUSED = (
    select(func.max(_REFUSAL).op("|")(func.min(_REFUSAL)))
    .where(history_item.c.turn == turn.c.id, text(ITEM_REFUSED))
    .scalar_subquery()
)
"""What of a turn is left out because a backend refused it, as a key of `REFUSALS`; NULL for nothing."""

_OPENING, _OPENED = input_.alias("opening"), turn.alias("opened")

_FIRST_RECENT = (
    select(_OPENING.c.event)
    .select_from(_OPENED.join(_OPENING, _OPENING.c.turn == _OPENED.c.id))
    .where(_OPENED.c.task == bindparam("task"), _OPENING.c.ordinal == ZERO)
    .order_by(_OPENING.c.event.desc())
    .limit(ONE)
    .offset(bindparam("skip"))
    .scalar_subquery()
)
"""When the first of the latest turns was accepted; NULL when the task has no more than `skip` turns. Each turn is accepted
after the end of the turn before it, and that end was an event."""

_IS_RECENT = and_(bindparam("history") > ZERO, input_.c.event >= func.coalesce(_FIRST_RECENT, literal_column("-1")))

_NOTHING: ColumnElement[Any] = literal_column("NULL")


def _turn_columns(history: str, *, artifacts: bool = True) -> tuple[ColumnElement[Any], ...]:
    """The columns of a turn. `history` is `all`, `none`, or `recent` for that of the `history` latest turns of `task`, which
    are those after `skip` turns, counted from the last one. What belongs to the whole turn stands beside its first message."""
    first = input_.c.ordinal == ZERO
    payload: ColumnElement[Any] = input_.c.payload
    messages: ColumnElement[Any] = case((first, turn.c.messages))
    if history == "recent":
        payload, messages = case((_IS_RECENT, payload)), case((and_(first, _IS_RECENT), turn.c.messages))
    elif history == "none":
        payload = messages = _NOTHING
    made = case((first, turn.c.artifacts)) if artifacts else _NOTHING
    whole = turn.c.usage, case((and_(first, turn.c.usage.is_(None)), _REPORTS)), case((first, _REFUSED))
    return input_.c.ordinal, payload, input_.c.event, turn.c.ended_at, _QUARANTINED, *whole, messages, made, turn.c.task


def turns(*, history: bool, artifacts: bool) -> Select[Any]:
    """The turns of one task, `task_0`, in no order, so that a reader may stop. A reader of several tasks adds one
    parameter for each, because a list in JSON would cut an id at a NUL."""
    asked: list[ColumnElement[str]] = [bindparam("task_0")]
    return (
        select(*_turn_columns("all" if history else "none", artifacts=artifacts))
        .select_from(turn.join(input_, input_.c.turn == turn.c.id))
        .where(turn.c.task.in_(asked))
    )


def recent_turns(*, artifacts: bool) -> Select[Any]:
    """The turns of `task`, in no order, with the history of the `history` latest ones."""
    return (
        select(*_turn_columns("recent", artifacts=artifacts))
        .select_from(turn.join(input_, input_.c.turn == turn.c.id))
        .where(turn.c.task == bindparam("task"))
    )


def whole_task(history: str) -> Select[Any]:
    """A task, and its turns in no order."""
    return (
        select(*task_columns, *_turn_columns(history))
        .select_from(_TASK_IN_CONTEXT.join(turn, turn.c.task == task.c.id).join(input_, input_.c.turn == turn.c.id))
        .where(task.c.id == bindparam("task"), _BELONGS, _OF_AGENT, _LIVING)
    )


WHOLE_TASK = whole_task("all")
RECENT_TASK = whole_task("recent")

_FIRST_TURN = limited(
    select(turn.c.id)
    .select_from(turn.join(thread, thread.c.id == turn.c.thread))
    .where(turn.c.task == bindparam("task"))
    .order_by(thread.c.epoch, turn.c.number)
)

FIRST_MESSAGE = select(input_.c.payload).where(input_.c.turn == _FIRST_TURN.scalar_subquery(), input_.c.ordinal == ZERO)

EVENTS = (
    select(event.c.first, event.c.last, event.c.payload)
    .where(event.c.task == bindparam("task"), event.c.last > bindparam("after"))
    .order_by(event.c.last)
)


def listing(*, in_context: bool, in_state: bool, since: bool, after: bool) -> tuple[Select[Any], Select[Any]]:
    """The parameters are tenant, principal, agent, limit, and the parameters of the active filters."""

    def matching(columns: Select[Any]) -> Select[Any]:
        query = columns.where(_OF_AGENT, text("visible = 1"))
        if in_context:
            query = query.where(_CONTEXT_BELONGS, context.c.public_id == bindparam("context_id"))
        else:
            query = query.where(_BELONGS)
        if in_state:
            query = query.where(task.c.state == bindparam("state"))
        if since:
            query = query.where(task.c.status_at >= bindparam("status_since"))
        return query

    page = matching(select(*task_columns).select_from(_TASK_IN_CONTEXT).where(_LIVING))
    page = page.order_by(task.c.status_at.desc(), task.c.id.desc())
    page = limited(page, bindparam("limit"))
    if after:
        last = tuple_(bindparam("after_at"), bindparam("after_id"))
        page = page.where(tuple_(task.c.status_at, task.c.id) < last)
    counted = select(func.count()).select_from(_TASK_IN_CONTEXT if in_context else task)
    return page, matching(counted)
