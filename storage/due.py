"""The queries that find what has to end: deletions at backends, tasks and contexts over their time. Law: as in `queries`;
no index exists for them alone, so that a turn does not pay for what happens once an hour."""

from sqlalchemy import ColumnElement, and_, bindparam, exists, literal_column, or_, select, text, tuple_

from storage.conditions import ENDED
from storage.sql import compiled, context, delete_job, event, push_config, task, thread, turn, word

_ONE: ColumnElement[int] = literal_column("1")
_NONE: ColumnElement[int] = literal_column("0")

DELETIONS = compiled(
    select(delete_job.c.id, delete_job.c.adapter, delete_job.c.handle, delete_job.c.due_at, delete_job.c.attempts)
    # Those that were given up have no time.
    .where(delete_job.c.due_at > _NONE)
    .order_by(delete_job.c.due_at)
    .limit(bindparam("limit"))
    .offset(_NONE)
)

_OWNER = (task.c.tenant, task.c.principal, task.c.agent)

NEXT_OWNER = compiled(
    select(*_OWNER)
    .where(task.c.visible == _ONE, tuple_(*_OWNER) > tuple_(*(bindparam(column.name) for column in _OWNER)))
    .order_by(*_OWNER)
    .limit(_ONE)
    .offset(_NONE)
)

DUE_TASKS = compiled(
    select(
        task.c.id,
        task.c.status_at,
        exists(select(_ONE).select_from(event).where(event.c.task == task.c.id)),
    )
    .where(
        *(column == bindparam(column.name) for column in _OWNER),
        task.c.visible == _ONE,
        text(ENDED),
        task.c.status_at < bindparam("before"),
        # What is still to be delivered is read from its log.
        ~exists(
            select(_ONE)
            .select_from(push_config)
            .where(push_config.c.task == task.c.id, push_config.c.due_at.is_not(None))
        ),
        tuple_(task.c.status_at, task.c.id) > tuple_(bindparam("after_at"), bindparam("after_id")),
    )
    .order_by(task.c.status_at, task.c.id)
    .limit(bindparam("limit"))
    .offset(_NONE)
)

_TURN_LEFT = exists(
    select(_ONE).select_from(thread.join(turn, turn.c.thread == thread.c.id)).where(thread.c.context == context.c.id)
)
_TASK_LEFT = exists(select(_ONE).select_from(task).where(task.c.context == context.c.id, task.c.visible == _ONE))

CONTEXTS = compiled(
    select(
        context.c.id,
        context.c.tenant,
        context.c.principal,
        context.c.public_id,
        context.c.created_at,
        and_(context.c.state == word("open"), context.c.last_used_at < bindparam("before")),
        and_(context.c.state.in_([word("expired"), word("deleted")]), or_(_TURN_LEFT, _TASK_LEFT)),
    )
    .where(context.c.id > bindparam("after"))
    .order_by(context.c.id)
    .limit(bindparam("limit"))
    .offset(_NONE)
)

LEFT = compiled(select(or_(_TURN_LEFT, _TASK_LEFT)).where(context.c.id == bindparam("context")))
