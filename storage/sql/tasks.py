"""The queries of contexts and tasks as callers see them. Law, of all queries: an index finds rows whose number grows."""

from typing import Any

from sqlalchemy import Select, Text, and_, bindparam, case, cast, func, literal_column, or_, select, text, tuple_
from sqlalchemy.sql.expression import ColumnElement, TextClause

from gateway.ledger.leases import TRIES
from storage.schema.conditions import ITEM_REFUSED, task_waiting, thread_live
from storage.schema.tables import context, event, history_item, input_, service_call, task, thread, turn, withdrawal
from storage.sql.fragments import (
    ONE,
    ZERO,
    as_bytes,
    formatted,
    joined,
    limited,
    matches,
    some,
    task_columns,
    there_is,
    word,
)

_THREAD = (
    *some(thread, "id", "context", "agent", "epoch", "storage_owner", "handle_kind", "handle", "generation"),
    thread.c.adapter_state,
    (thread.c.state == word("lost")).label("lost"),
    thread.c.state_version,
    (thread.c.state == word("unsynced")).label("unsynced"),
    thread.c.adapter_secret,
    there_is(withdrawal, withdrawal.c.thread == thread.c.id).label("withdraws"),
)
"""The columns of ThreadRecord, in its order."""

_LIVING = context.c.state.in_([word("open"), word("closed")])
"""Tombstones are about to be purged."""

_BELONGS = matches(task, tenant="tenant", principal="principal")

_OF_AGENT = task.c.agent == bindparam("agent")

_CONTEXT_BELONGS = matches(context, tenant="tenant", principal="principal")

_TASK_IN_CONTEXT = task.join(context, context.c.id == task.c.context)

_TURN_WITH_INPUT = turn.join(input_, input_.c.turn == turn.c.id)

_TURNS_OF_TASK = _TASK_IN_CONTEXT.join(turn, turn.c.task == task.c.id).join(input_, input_.c.turn == turn.c.id)

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
    select(literal_column("'['").concat(joined(service_call.c.usage)).concat(literal_column("']'")))
    .where(
        service_call.c.turn == turn.c.id,
        or_(turn.c.ended_at.is_(None), service_call.c.ended_at <= turn.c.ended_at),
    )
    .scalar_subquery()
)
"""What the backend reported of the tokens of a turn: a list of the reports of its service calls.

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

_WITH_HISTORY, _WITH_ARTIFACTS = bindparam("with_history") == ONE, bindparam("with_artifacts") == ONE

_NULL = word("null")


def _turn_json(
    *, history: ColumnElement[bool] | bool = True, artifacts: ColumnElement[bool] | bool = True
) -> ColumnElement[Any]:
    """A turn, or a further message to it, as the JSON array that `storage.read.rows.TurnRow` describes. It is one column,
    because the driver releases the interpreter's lock for each column of each row; and bytes, so that a text that is not UTF-8
    spoils this row alone. History and artifacts, where they are asked for, stand beside the first message."""
    first = input_.c.ordinal == ZERO
    return as_bytes(
        formatted(
            literal_column("'[%s,%s,%s,%s,%s,%s,%s,%s]'"),
            input_.c.ordinal,
            _or_null(history, input_.c.payload),
            _or_null(history, func.coalesce(case((first, turn.c.messages)), _NULL)),
            _or_null(artifacts, func.coalesce(case((first, turn.c.artifacts)), _NULL)),
            input_.c.event,
            case((turn.c.ended_at.is_not(None), _NULL), (_QUARANTINED, word("true")), else_=word("false")),
            func.coalesce(turn.c.usage, _REPORTS, _NULL),
            func.coalesce(cast(_REFUSED, Text), _NULL),
        )
    )


def _or_null(asked: ColumnElement[bool] | bool, json: ColumnElement[Any]) -> ColumnElement[Any]:
    """This JSON where it is asked for, else null."""
    if isinstance(asked, bool):
        return json if asked else _NULL
    return case((asked, json), else_=_NULL)


TURNS = (
    select(_turn_json(history=_WITH_HISTORY, artifacts=_WITH_ARTIFACTS))
    .select_from(_TURN_WITH_INPUT)
    .where(turn.c.task == bindparam("task"))
)
"""The turns of one task, in no order, so that a reader may stop."""

RECENT_TURNS = (
    select(_turn_json(history=_IS_RECENT, artifacts=_WITH_ARTIFACTS))
    .select_from(_TURN_WITH_INPUT)
    .where(turn.c.task == bindparam("task"))
)
"""The turns of `task`, in no order, with the history of the `history` latest ones, which are those after `skip` turns, counted
from the last one."""


def _whole_task(history: ColumnElement[bool] | bool) -> Select[Any]:
    """A task, and its turns in no order."""
    return (
        select(*task_columns, _turn_json(history=history))
        .select_from(_TURNS_OF_TASK)
        .where(task.c.id == bindparam("task"), _BELONGS, _OF_AGENT, _LIVING)
    )


WHOLE_TASK = _whole_task(history=True)
RECENT_TASK = _whole_task(history=_IS_RECENT)

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


_LISTED = (
    *some(task, "id", "context"),
    context.c.public_id,
    task.c.state,
    as_bytes(task.c.status_message),
    *some(task, "status_at", "last_event", "created_at"),
)
"""The columns of TaskRecord, in its order, without those that are the same for all tasks of a list."""


def listing(*, in_context: bool, in_state: bool, since: bool, after: bool) -> tuple[Select[Any], Select[Any]]:
    """At most `limit` tasks, and the number of all. The other parameters are tenant, principal, agent, and those of the active
    filters."""
    matching = _matching(in_context=in_context, in_state=in_state, since=since)
    page = select(*_LISTED).select_from(_TASK_IN_CONTEXT).where(*matching, *_ON_PAGE[after]).order_by(*_LATEST_FIRST)
    counted = select(func.count()).select_from(_TASK_IN_CONTEXT if in_context else task).where(*matching)
    return limited(page, bindparam("limit")), counted


def listing_with_turns(
    *, in_context: bool, in_state: bool, since: bool, after: bool, history: bool, artifacts: bool
) -> Select[Any]:
    """The tasks of `listing` with a row for each message of each turn, without a limit, so that a reader stops."""
    matching = _matching(in_context=in_context, in_state=in_state, since=since)
    columns = select(*_LISTED, _turn_json(history=history, artifacts=artifacts)).select_from(_TURNS_OF_TASK)
    return columns.where(*matching, *_ON_PAGE[after]).order_by(*_LATEST_FIRST)


_ON_PAGE = {
    False: (_LIVING,),
    True: (_LIVING, tuple_(task.c.status_at, task.c.id) < tuple_(bindparam("after_at"), bindparam("after_id"))),
}
"""By whether it is a later page."""

_LATEST_FIRST = task.c.status_at.desc(), task.c.id.desc()


def _matching(*, in_context: bool, in_state: bool, since: bool) -> list[ColumnElement[bool] | TextClause]:
    """The conditions of these filters."""
    found: list[ColumnElement[bool] | TextClause] = [_OF_AGENT, text("visible = 1")]
    found += [_CONTEXT_BELONGS, context.c.public_id == bindparam("context_id")] if in_context else [_BELONGS]
    if in_state:
        found.append(task.c.state == bindparam("state"))
    if since:
        found.append(task.c.status_at >= bindparam("status_since"))
    return found
