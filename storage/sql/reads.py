"""The queries of what was said in a thread, and what it weighs. Law: as in `queries`.

The queries of contexts and tasks, as callers see them, compiled once from the tables. Law, of those in other modules too:
what grows is read through an index.
"""

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, func, literal_column, or_, select, text, tuple_

from gateway.ledger.leases import TRIES
from storage.schema.conditions import LIVE, UNSENT, WAITING
from storage.sql.fragments import (
    ONE,
    ZERO,
    context,
    event,
    history_item,
    input_,
    is_displaced,
    lesser,
    limited,
    matches,
    service_call,
    task,
    task_columns,
    thread,
    tool_call,
    turn,
    word,
)

_ITEMS = (
    select(
        history_item.c.position,
        turn.c.number,
        turn.c.id,
        history_item.c.payload,
        input_.c.payload,
        history_item.c.provider_id,
        history_item.c.sent_in,
        history_item.c.replayable,
        (turn.c.status == word("failed")).label("failed"),
        history_item.c.service_call,
        tool_call.c.sequence,
        is_displaced.label("displaced"),
    )
    .select_from(
        history_item.join(turn, turn.c.id == history_item.c.turn)
        .outerjoin(input_, and_(input_.c.turn == history_item.c.turn, input_.c.ordinal == history_item.c.input))
        .outerjoin(tool_call, tool_call.c.id == history_item.c.tool_call)
    )
    .where(history_item.c.thread == bindparam("thread"))
    .order_by(turn.c.number, history_item.c.position)
)

HISTORY = _ITEMS

UNSENT_ITEMS = _ITEMS.where(text(UNSENT), history_item.c.kind.in_([word("user"), word("output")]))

_OLDER = history_item.alias("older")
_OF = turn.alias("of")
_TURN_NOW = select(turn.c.number).where(turn.c.id == bindparam("turn")).scalar_subquery()

_END = (
    select(
        (func.coalesce(func.max(history_item.c.position), ZERO) + ONE).label("position"),
        ZERO.label("messages"),
        ZERO.label("weight"),
        _TURN_NOW.label("oldest"),
        ZERO.label("whole"),
    )
    .where(history_item.c.thread == bindparam("thread"))
    .cte("tail", recursive=True)
)


def _if(condition: ColumnElement[bool], value: ColumnElement[int]) -> ColumnElement[int]:
    return case((condition, value), else_=ZERO)


_COUNTS = and_(
    _OLDER.c.replayable == ONE,
    _OLDER.c.weight > ZERO,
    _OF.c.number <= _TURN_NOW,
    or_(_OF.c.displaced == ZERO, _OF.c.ended_at.is_(None)),
    or_(bindparam("opaque") == ONE, _OLDER.c.kind.not_in([word("reasoning"), word("opaque")])),
)

# One step back from the end: positions have no gaps. Whole are the turns at a message of the oldest turn met so far:
# what a turn said comes behind its message, and behind what the turns before it said.
_BACK = (
    select(
        _OLDER.c.position,
        _END.c.messages + _if(and_(_COUNTS, _OLDER.c.kind.in_([word("user"), word("assistant")])), ONE),
        _END.c.weight + _if(_COUNTS, _OLDER.c.weight),
        lesser(_END.c.oldest, _OF.c.number),
        _if(and_(_OLDER.c.input == ZERO, _OF.c.number <= _END.c.oldest), ONE),
    )
    .select_from(
        _END.join(
            _OLDER, and_(_OLDER.c.thread == bindparam("thread"), _OLDER.c.position == _END.c.position - ONE)
        ).join(_OF, _OF.c.id == _OLDER.c.turn)
    )
    .where(
        or_(_END.c.whole == ZERO, and_(_END.c.messages < bindparam("messages"), _END.c.weight < bindparam("weight")))
    )
)

_TAIL = _END.union_all(_BACK)

RECENT_HISTORY = _ITEMS.where(history_item.c.position >= select(func.min(_TAIL.c.position)).scalar_subquery())

MEASURED_CALLS = limited(
    select(service_call.c.weight, service_call.c.usage)
    .select_from(turn.join(service_call, service_call.c.turn == turn.c.id))
    .where(turn.c.thread == bindparam("thread"), service_call.c.status == word("completed"))
    .order_by(turn.c.number.desc(), service_call.c.round.desc()),
    literal_column("8"),
)


_THREAD = (
    thread.c.id,
    thread.c.context,
    thread.c.agent,
    thread.c.epoch,
    thread.c.storage_owner,
    thread.c.handle_kind,
    thread.c.handle,
    thread.c.generation,
    thread.c.adapter_state,
    (thread.c.state == word("lost")).label("lost"),
    thread.c.state_version,
    (thread.c.state == word("unsynced")).label("unsynced"),
)
"""In the order of ThreadRecord."""

_LIVING = context.c.state.in_([word("open"), word("closed")])
"""What is left of other contexts is about to be purged."""

_BELONGS = and_(matches(task, tenant="tenant", principal="principal"))

_OF_AGENT = task.c.agent == bindparam("agent")

_CONTEXT_BELONGS = and_(matches(context, tenant="tenant", principal="principal"))

_TASK_IN_CONTEXT = task.join(context, context.c.id == task.c.context)

_WAITS = (
    select(turn.c.task)
    .where(turn.c.thread == thread.c.id, turn.c.ended_at.is_(None), turn.c.status == word("waiting"))
    .scalar_subquery()
)

_ASIDE = turn.c.tries >= literal_column(str(TRIES))

_STUCK = limited(
    select(turn.c.task).where(turn.c.thread == thread.c.id, turn.c.ended_at.is_(None), _ASIDE), ONE
).scalar_subquery()

CONTEXT = (
    select(context.c.id, context.c.public_id, context.c.state, _WAITS, _STUCK, *_THREAD)
    .select_from(
        context.outerjoin(
            thread, and_(thread.c.context == context.c.id, thread.c.agent == bindparam("agent"), text(f"thread.{LIVE}"))
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
    .where(task.c.context == bindparam("context"), text(f"visible = 1 AND task.{WAITING}"))
)

REPLAY = (
    select(turn.c.task, input_.c.digest)
    .select_from(input_.join(turn, turn.c.id == input_.c.turn))
    .where(matches(input_, tenant="tenant", principal="principal", agent="agent", key_kind="key_kind", key="key"))
)


_TURN = (input_.c.ordinal, input_.c.payload, input_.c.event, turn.c.ended_at, _ASIDE, turn.c.messages)

_IN_ORDER = input_.c.event
"""Of the turns of one task: each is accepted when the one before it has ended, and its end was an event."""


def turns(*, artifacts: bool) -> Select[Any]:
    """Of one task, `task_0`; who wants several puts their parameters beside it: JSON would cut an id at a NUL."""
    asked: list[ColumnElement[str]] = [bindparam("task_0")]
    return (
        select(turn.c.task, *_TURN, turn.c.artifacts if artifacts else literal_column("NULL"))
        .select_from(turn.join(input_, input_.c.turn == turn.c.id))
        .where(turn.c.task.in_(asked))
        .order_by(turn.c.task, _IN_ORDER, input_.c.ordinal)
    )


WHOLE_TASK = (
    select(*task_columns, *_TURN, turn.c.artifacts)
    .select_from(_TASK_IN_CONTEXT.join(turn, turn.c.task == task.c.id).join(input_, input_.c.turn == turn.c.id))
    .where(task.c.id == bindparam("task"), _BELONGS, _OF_AGENT, _LIVING)
    .order_by(_IN_ORDER, input_.c.ordinal)
)

_FIRST_TURN = limited(
    select(turn.c.id)
    .select_from(turn.join(thread, thread.c.id == turn.c.thread))
    .where(turn.c.task == bindparam("task"))
    .order_by(thread.c.epoch, turn.c.number),
    ONE,
)

FIRST_MESSAGE = select(input_.c.payload).where(input_.c.turn == _FIRST_TURN.scalar_subquery(), input_.c.ordinal == ZERO)

EVENTS = (
    select(event.c.first, event.c.last, event.c.payload)
    .where(event.c.task == bindparam("task"), event.c.last > bindparam("after"))
    .order_by(event.c.last)
)


def listing(*, in_context: bool, in_state: bool, since: bool, after: bool) -> tuple[Select[Any], Select[Any]]:
    """Parameters: tenant, principal, agent, limit, and those of the filters that are on."""

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
        behind = tuple_(bindparam("after_at"), bindparam("after_id"))
        page = page.where(tuple_(task.c.status_at, task.c.id) < behind)
    counted = select(func.count()).select_from(_TASK_IN_CONTEXT if in_context else task)
    return page, matching(counted)
