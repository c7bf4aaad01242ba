"""The queries of what is wrong, late or given up, for operators. Law: as in `sql/admin_contexts.py`; what is open or failed has
indexes of its own."""

from typing import Any

from sqlalchemy import Select, and_, bindparam, func, literal_column, or_, select, text, tuple_, union_all
from sqlalchemy.sql.expression import ColumnElement, FromClause, TextClause

from gateway.ports.adapter import HANDLE_LOST
from storage.schema.conditions import TASK_WAITING, THREAD_BROKEN
from storage.schema.tables import (
    context,
    delete_job,
    duty,
    event,
    process,
    push_config,
    service_call,
    task,
    thread,
    tool_call,
    turn,
)
from storage.sql.admin_contexts import CORRELATION_ID, IN_TENANT, last_number, recent
from storage.sql.fragments import ONE, ZERO, as_number, limited, place_in, some, there_is, unindexed, word

_LIMIT: ColumnElement[int] = bindparam("limit")


def _in_context(source: FromClause) -> FromClause:
    return source.join(thread, thread.c.id == turn.c.thread).join(context, context.c.id == thread.c.context)


# --- turns that have not ended ---

_open = limited(select(turn.c.id).where(turn.c.ended_at.is_(None)), bindparam("chunk")).subquery("open_turns")
_OPEN_TURNS = _in_context(_open.join(turn, turn.c.id == _open.c.id))

ADMIN_OPEN_COUNTS = (
    select(thread.c.agent, turn.c.status, func.count(), func.min(turn.c.accepted_at))
    .select_from(_OPEN_TURNS)
    .where(IN_TENANT)
    .group_by(thread.c.agent, turn.c.status)
    .order_by(thread.c.agent, turn.c.status)
)

_unanswered = turn.alias("unanswered")
_asking = limited(select(task.c.id).where(text(TASK_WAITING)), bindparam("chunk")).subquery("asking")

ADMIN_QUESTION_COUNTS = (
    select(task.c.agent, func.count(), func.min(task.c.status_at))
    .select_from(_asking.join(task, task.c.id == _asking.c.id).join(context, context.c.id == task.c.context))
    .where(
        IN_TENANT,
        context.c.state == word("open"),
        ~there_is(_unanswered, _unanswered.c.task == task.c.id, _unanswered.c.ended_at.is_(None)),
    )
    .group_by(task.c.agent)
    .order_by(task.c.agent)
)
"""Of the tasks that wait without an open turn, as their turns have ended with a question."""

_latest, _logged = service_call.alias("latest"), event.alias("logged")

_LATEST_CALL = limited(
    select(_latest.c.id).where(_latest.c.turn == turn.c.id).order_by(_latest.c.round.desc(), _latest.c.attempt.desc())
).scalar_subquery()

_MARK = '{"artifactUpdate"'
_ANSWERING = func.coalesce(
    limited(
        select(func.substr(_logged.c.payload, ONE, literal_column(str(len(_MARK)))))
        .where(_logged.c.task == turn.c.task)
        .order_by(_logged.c.last.desc())
    ).scalar_subquery()
    == word(_MARK),
    literal_column("1 = 0"),
)

ADMIN_OPEN_TURNS = limited(
    select(
        *some(turn, "id", "task"),
        *some(context, "id", "principal"),
        thread.c.agent,
        *some(turn, "status", "process", "tries", "accepted_at", "started_at"),
        *some(service_call, "id", "status", "round", "attempt", "prepared_at"),
        _ANSWERING,
    )
    .select_from(_OPEN_TURNS.outerjoin(service_call, service_call.c.id == _LATEST_CALL))
    .where(IN_TENANT, or_(turn.c.status == word("running"), turn.c.tries > ZERO))
    .order_by(turn.c.accepted_at, turn.c.id),
    _LIMIT,
)

ADMIN_OPEN_TOOLS = limited(
    select(
        tool_call.c.id,
        *some(turn, "id", "task"),
        context.c.id,
        thread.c.agent,
        *some(tool_call, "name", "executor", "status", "asked_at", "started_at"),
    )
    .select_from(
        _OPEN_TURNS.join(service_call, service_call.c.id == _LATEST_CALL).join(
            tool_call, tool_call.c.service_call == service_call.c.id
        )
    )
    .where(IN_TENANT, tool_call.c.outcome.is_(None))
    .order_by(tool_call.c.started_at, tool_call.c.id),
    _LIMIT,
)

# --- how long things took lately ---

_recent = recent()
_RECENT_CALLS = _recent.join(turn, turn.c.id == _recent.c.id).join(service_call, service_call.c.turn == turn.c.id)

ADMIN_CALL_TIMES = limited(
    select(
        thread.c.agent,
        service_call.c.first_at - service_call.c.prepared_at,
        service_call.c.ended_at - service_call.c.prepared_at,
    )
    .select_from(
        _RECENT_CALLS.join(thread, thread.c.id == turn.c.thread).join(context, context.c.id == thread.c.context)
    )
    .where(IN_TENANT, service_call.c.status == word("completed"))
    .order_by(turn.c.id.desc()),
    _LIMIT,
)

ADMIN_TOOL_TIMES = limited(
    select(thread.c.agent, tool_call.c.name, tool_call.c.ended_at - tool_call.c.started_at)
    .select_from(
        _RECENT_CALLS.join(tool_call, tool_call.c.service_call == service_call.c.id)
        .join(thread, thread.c.id == turn.c.thread)
        .join(context, context.c.id == thread.c.context)
    )
    .where(
        IN_TENANT,
        tool_call.c.executor != word("client"),
        tool_call.c.status == word("completed"),
        tool_call.c.started_at.is_not(None),
        tool_call.c.ended_at.is_not(None),
    )
    .order_by(turn.c.id.desc()),
    _LIMIT,
)

# --- turns that failed, threads that cannot continue ---

_FAILED = text("status = 'failed'")

_failed = limited(
    select(turn.c.id).where(_FAILED, turn.c.ended_at >= bindparam("since")).order_by(turn.c.ended_at.desc()),
    bindparam("chunk"),
).subquery("failed")

ADMIN_FAILED_LATELY = (
    select(
        *some(thread, "agent"),
        *some(turn, "failure_class", "task", "thread"),
        context.c.id,
        turn.c.ended_at,
        turn.c.number == last_number(turn.c.thread),
        turn.c.number,
        CORRELATION_ID,
    )
    .select_from(_in_context(_failed.join(turn, turn.c.id == _failed.c.id).join(task, task.c.id == turn.c.task)))
    .where(IN_TENANT)
    .order_by(turn.c.ended_at.desc(), turn.c.id.desc())
)

_FAILED_BEFORE = (
    select(turn.c.id)
    .where(
        _FAILED,
        turn.c.ended_at <= bindparam("ended_at"),
        tuple_(turn.c.ended_at, turn.c.id) < tuple_(bindparam("ended_at"), bindparam("turn")),
    )
    .order_by(turn.c.ended_at.desc(), turn.c.id.desc())
)
_failed_before = limited(_FAILED_BEFORE, bindparam("chunk")).subquery("failed")
_edge = turn.alias("edge")

ADMIN_FAILED_EDGE = (
    select(turn.c.ended_at, turn.c.id)
    .where(
        _FAILED,
        turn.c.ended_at <= bindparam("ended_at"),
        tuple_(turn.c.ended_at, turn.c.id) < tuple_(bindparam("ended_at"), bindparam("turn")),
    )
    .order_by(turn.c.ended_at.desc(), turn.c.id.desc())
    .limit(ONE)
    .offset(bindparam("chunk") - ONE)
)

ADMIN_FAILED = limited(
    select(
        *some(turn, "id", "task"),
        *some(context, "id", "principal"),
        thread.c.agent,
        *some(turn, "number", "failure_class"),
        *some(service_call, "id", "error_class"),
        *some(turn, "accepted_at", "ended_at"),
        CORRELATION_ID,
    )
    .select_from(
        _in_context(
            _failed_before.join(turn, turn.c.id == _failed_before.c.id).join(task, task.c.id == turn.c.task)
        ).outerjoin(service_call, service_call.c.id == _LATEST_CALL)
    )
    .where(IN_TENANT, or_(bindparam("agent") == word(""), thread.c.agent == bindparam("agent")))
    .order_by(turn.c.ended_at.desc(), turn.c.id.desc()),
    _LIMIT,
)
"""Of the `chunk` latest turns that failed before a key."""

_broken = limited(select(thread.c.id).where(text(THREAD_BROKEN)), bindparam("chunk")).subquery("broken")

_lost_turn = turn.alias("lost_turn")

_LOST_SINCE = (
    select(func.min(_lost_turn.c.ended_at))
    .where(
        _lost_turn.c.thread == thread.c.id,
        _lost_turn.c.number > last_number(thread.c.id) - literal_column("100"),
        _lost_turn.c.failure_class.in_(list(map(word, sorted(HANDLE_LOST)))),
        _lost_turn.c.ended_at >= func.coalesce(thread.c.began_at, ZERO),
    )
    .scalar_subquery()
)
"""When the first of the latest hundred turns has found the thread lost."""

ADMIN_BROKEN = limited(
    select(
        *some(thread, "id", "context"),
        context.c.principal,
        *some(thread, "agent", "state", "handle"),
        *some(turn, "id", "task"),
        func.coalesce(_LOST_SINCE, turn.c.accepted_at),
    )
    .select_from(
        _broken.join(thread, thread.c.id == _broken.c.id)
        .join(context, context.c.id == thread.c.context)
        .outerjoin(turn, and_(turn.c.thread == thread.c.id, turn.c.number == last_number(thread.c.id)))
    )
    .where(IN_TENANT)
    .order_by(turn.c.accepted_at.desc(), thread.c.id),
    _LIMIT,
)

# --- deliveries ---

_STUCK = or_(
    push_config.c.state.in_([word("stopped"), word("gone")]),
    and_(push_config.c.state == word("active"), push_config.c.attempts > ZERO),
)
"""The latest attempt has failed, or nothing is tried any more."""

_last = event.alias("last_of_task")
_LAST_EVENT = func.coalesce(
    select(func.max(_last.c.last)).where(_last.c.task == push_config.c.task).scalar_subquery(), ZERO
)


_DELIVERY: tuple[ColumnElement[Any], ...] = (
    *some(push_config, "task", "id"),
    *some(context, "id", "principal"),
    *some(task, "agent", "state"),
    *some(push_config, "url", "state", "next_event"),
    _LAST_EVENT,
    *some(push_config, "due_at", "attempts"),
    func.substr(push_config.c.last_error, ONE, literal_column("200")),
    push_config.c.created_at,
)


def _with_task(source: FromClause) -> FromClause:
    return source.join(task, task.c.id == push_config.c.task).join(context, context.c.id == task.c.context)


def _deliveries(*conditions: ColumnElement[bool] | TextClause) -> Select[Any]:
    key = some(push_config, "created_at", "task", "id")
    return limited(
        select(*_DELIVERY)
        .select_from(_with_task(push_config))
        .where(
            IN_TENANT,
            *conditions,
            tuple_(*key) < tuple_(bindparam("created_at"), bindparam("before_task"), bindparam("before_id")),
        )
        .order_by(*(column.desc() for column in key)),
        _LIMIT,
    )


ADMIN_DELIVERIES_STUCK = _deliveries(push_config.c.state.in_([word("active"), word("stopped"), word("gone")]), _STUCK)
ADMIN_DELIVERIES_ACTIVE = _deliveries(push_config.c.state == word("active"))
ADMIN_DELIVERIES_OF_TASK = _deliveries(push_config.c.task == bindparam("task"))

_CURSOR = some(push_config, "task", "id", "url", "state", "next_event", "created_at")

_failing = limited(
    select(*_CURSOR)
    .where(push_config.c.due_at.is_not(None), push_config.c.attempts > ZERO)
    .order_by(push_config.c.due_at.desc()),
    bindparam("chunk"),
).subquery("failing")
"""What has failed waits for its next attempt, behind all that is due now: the walk begins there."""

_over = limited(
    select(*_CURSOR).where(push_config.c.state.in_([word("stopped"), word("gone")])), bindparam("chunk")
).subquery("over")

_stuck = union_all(select(*_failing.c), select(*_over.c)).cte("stuck")

_RECEIVER = func.substr(_stuck.c.url, ONE, place_in(_stuck.c.url.concat(word("?")), word("?")) - ONE)
"""The URL without its query, which may differ from task to task."""

_BEHIND = (
    select(func.max(_last.c.last) - _stuck.c.next_event + ONE)
    .where(_last.c.task == _stuck.c.task, _last.c.last >= _stuck.c.next_event)
    .scalar_subquery()
)

_owed = (
    select(
        _stuck.c.task,
        _stuck.c.id,
        _stuck.c.state,
        _stuck.c.created_at,
        _RECEIVER.label("receiver"),
        _BEHIND.label("behind"),
    )
    .select_from(_stuck.join(task, task.c.id == _stuck.c.task))
    .where(unindexed(task.c.tenant) == bindparam("tenant"))
    .subquery("owed")
)
_of_receiver = (_owed.c.receiver, _owed.c.state)
_ranked = select(
    _owed.c.task,
    _owed.c.id,
    func.count().over(partition_by=_of_receiver).label("deliveries"),
    func.coalesce(as_number(func.sum(_owed.c.behind).over(partition_by=_of_receiver)), ZERO).label("behind"),
    func.row_number()
    .over(partition_by=_of_receiver, order_by=(_owed.c.created_at, _owed.c.task, _owed.c.id))
    .label("place"),
).subquery("ranked")

ADMIN_STUCK_RECEIVERS = limited(
    select(
        *_DELIVERY,
        _ranked.c.deliveries,
        _ranked.c.behind,
        select(func.count()).select_from(_stuck).scalar_subquery(),
    )
    .select_from(
        _with_task(
            _ranked.join(push_config, and_(push_config.c.task == _ranked.c.task, push_config.c.id == _ranked.c.id))
        )
    )
    .where(_ranked.c.place == ONE)
    .order_by(_ranked.c.behind.desc(), *some(push_config, "created_at", "task", "id")),
    _LIMIT,
)
"""The oldest stuck delivery of each receiver and state, with the sums of those like it, and how many were looked at of all
receivers and tenants."""

# --- deletions at backends ---

_THREAD_OF_JOB = func.substr(delete_job.c.id, ONE, place_in(delete_job.c.id, word(" ")) - ONE)
"""The id of a job is that of its thread, and the handle."""


def _handle_deletions(*conditions: ColumnElement[bool], order: tuple[ColumnElement[Any], ...]) -> Select[Any]:
    found = (
        select(
            *some(delete_job, "id", "adapter"),
            *some(thread, "id", "context"),
            context.c.principal,
            *some(delete_job, "handle", "due_at", "attempts"),
        )
        .select_from(
            delete_job.join(thread, thread.c.id == _THREAD_OF_JOB).join(context, context.c.id == thread.c.context)
        )
        .where(IN_TENANT, *conditions)
    )
    return limited(found.order_by(*order), _LIMIT)


_KEY = tuple_(bindparam("after_at"), bindparam("after_job"))

ADMIN_DELETIONS = _handle_deletions(
    delete_job.c.due_at >= bindparam("after_at"),
    tuple_(delete_job.c.due_at, delete_job.c.id) > _KEY,
    order=(delete_job.c.due_at, delete_job.c.id),
)
ADMIN_DELETIONS_GIVEN_UP = _handle_deletions(
    delete_job.c.due_at.is_(None), delete_job.c.id > bindparam("after_job"), order=(delete_job.c.id,)
)

# --- processes ---

ADMIN_PROCESSES = limited(
    select(*some(process, "id", "alive_until"))
    .where(process.c.alive_until >= bindparam("now"))
    .order_by(process.c.alive_until.desc()),
    _LIMIT,
)
ADMIN_DUTIES = limited(
    select(*some(duty, "name", "holder", "until")).where(duty.c.until >= bindparam("now")).order_by(duty.c.name), _LIMIT
)
