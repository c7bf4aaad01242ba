"""The queries that find what has to end: deletions at backends, tasks and contexts over their time. Law: as in `queries`;
no index exists for them alone, so that a turn does not pay for what happens once an hour.

The statements by which something ends: contexts that are deleted or expire, what is over its time, and handles that their
backends have to forget. Law: as in `statements`; what may be long goes in pieces, so that no other unit waits for it.
"""

from sqlalchemy import (
    Column,
    and_,
    bindparam,
    delete,
    exists,
    literal_column,
    null,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import ColumnElement, FromClause

from storage.schema.conditions import ENDED, GOING
from storage.sql.fragments import (
    compiled,
    context,
    delete_job,
    equals,
    event,
    history_item,
    input_,
    push_config,
    service_call,
    task,
    thread,
    tool_call,
    turn,
    word,
)
from storage.statement import Statement

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

ENDED_TASKS = compiled(
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

AGED_CONTEXTS = compiled(
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

PURGE_PENDING = compiled(select(or_(_TURN_LEFT, _TASK_LEFT)).where(context.c.id == bindparam("context")))


_IN_CONTEXT = equals(thread.c.context, "context")
_THREAD_OF_TURN = turn.c.thread == thread.c.id
_CALL_OF_TURN = service_call.c.turn == turn.c.id

# --- handles that a backend has to forget -----------------------------------------------------------------------------


def _forget(what: str, handle: Column[object], source: FromClause, *where: ColumnElement[bool]) -> Statement:
    """A job for every such handle, once; its id says whose it is."""
    named = select(
        thread.c.id + literal_column("' '") + handle, thread.c.agent, handle, bindparam("now"), literal_column("0")
    )
    named = named.select_from(source).where(handle.is_not(None), *where)
    columns = ["id", "adapter", "handle", "due_at", "attempts"]
    return Statement(
        what, compiled(sqlite.insert(delete_job).from_select(columns, named).on_conflict_do_nothing()), None
    )


MOVE_DELETION = Statement(
    "move a deletion on from when it was due",
    compiled(
        update(delete_job)
        .where(equals(delete_job.c.id, "job"), equals(delete_job.c.due_at, "due_at"))
        .values(due_at=bindparam("until"), attempts=bindparam("attempts"))
    ),
)

END_DELETION = Statement(
    "end a deletion that was due",
    compiled(delete(delete_job).where(equals(delete_job.c.id, "job"), equals(delete_job.c.due_at, "due_at"))),
)

# --- a context is deleted, or expires ---------------------------------------------------------------------------------

DELETE_CONTEXT = Statement(
    "bury a context of the caller",
    compiled(
        update(context)
        .where(
            equals(context.c.id, "context"),
            *(equals(context.c[name], name) for name in ("tenant", "principal")),
            context.c.state != word("deleted"),
        )
        .values(state=word("deleted"), last_used_at=bindparam("now"))
    ),
)

EXPIRE_CONTEXT = Statement(
    "let a context expire that nobody uses",
    compiled(
        update(context)
        .where(
            equals(context.c.id, "context"),
            context.c.state == word("open"),
            context.c.last_used_at < bindparam("idle_before"),
        )
        .values(state=word("expired"))
    ),
)

# One that rotates is in the row of the call that led to it, or was adopted: then it is not ours to delete.
DELETE_STATIC_HANDLES = _forget(
    "leave the handles of threads for deletion",
    thread.c.handle,
    thread,
    _IN_CONTEXT,
    thread.c.handle_kind == word("static"),
)

CLOSE_THREADS = Statement(
    "bury the threads and move their generation on",
    compiled(
        update(thread)
        .where(_IN_CONTEXT)
        .values(
            state=bindparam("state"),
            generation=thread.c.generation + _ONE,
            **dict.fromkeys(
                ("handle", "clean_handle", "adapter_state", "state_version", "lease_holder", "lease_until"), null()
            ),
        )
    ),
    rows=None,
)

# --- what was said in it goes: items, then turns without items, then tasks without turns -------------------------------

PURGE_ITEMS = Statement(
    "purge the items",
    compiled(
        delete(history_item).where(
            tuple_(history_item.c.thread, history_item.c.position).in_(
                select(history_item.c.thread, history_item.c.position)
                .select_from(thread.join(history_item, history_item.c.thread == thread.c.id))
                .where(_IN_CONTEXT)
                .limit(bindparam("item_limit"))
                .offset(literal_column("0"))
            )
        )
    ),
    rows=None,
)

_TURNS = (
    select(turn.c.id)
    .select_from(thread.join(turn, _THREAD_OF_TURN))
    .where(_IN_CONTEXT, ~exists(select(_ONE).select_from(history_item).where(history_item.c.thread == thread.c.id)))
    .order_by(thread.c.agent, thread.c.epoch, turn.c.number)
    .limit(bindparam("limit"))
    .offset(literal_column("0"))
)
_CALLS = select(service_call.c.id).where(service_call.c.turn.in_(_TURNS))


def _forget_purged(what: str, handle: Column[object], *where: ColumnElement[bool]) -> Statement:
    source = turn.join(thread, _THREAD_OF_TURN).join(service_call, _CALL_OF_TURN)
    return _forget(what, handle, source, turn.c.id.in_(_TURNS), *where)


# Also of epochs before the gateway kept the history: what is confirmed is always a backend's.
DELETE_CONFIRMED_HANDLES = _forget_purged(
    "leave the handles of completed calls for deletion", service_call.c.handle_out
)
DELETE_PENDING_HANDLES = _forget_purged(
    "leave the handles of other calls for deletion",
    service_call.c.pending_handle,
    thread.c.storage_owner == word("backend"),
)

PURGE_TOOL_CALLS = Statement(
    "purge the tool calls", compiled(delete(tool_call).where(tool_call.c.service_call.in_(_CALLS))), rows=None
)

PURGE_CALLS = Statement(
    "purge the service calls", compiled(delete(service_call).where(service_call.c.turn.in_(_TURNS))), rows=None
)

PURGE_INPUTS = Statement("purge the messages", compiled(delete(input_).where(input_.c.turn.in_(_TURNS))), rows=None)

# Turns lead to tasks and have to go before them: then only the index of the visible ones finds the tasks of a context.
MAKE_TASKS_VISIBLE = Statement(
    "make every task one that is listed",
    compiled(
        update(task)
        .where(task.c.id.in_(select(turn.c.task).where(turn.c.id.in_(_TURNS))))
        .values(visible=literal_column("1"))
    ),
    rows=None,
)

PURGE_TURNS = Statement("purge the turns", compiled(delete(turn).where(turn.c.id.in_(_TURNS))), rows=None)

_TASKS = (
    select(task.c.id)
    .where(
        equals(task.c.context, "context"),
        task.c.visible == _ONE,
        ~exists(select(_ONE).select_from(thread.join(turn, _THREAD_OF_TURN)).where(_IN_CONTEXT)),
    )
    .order_by(task.c.agent, task.c.status_at, task.c.id)
    .limit(bindparam("limit"))
    .offset(literal_column("0"))
)

PURGE_EVENTS = Statement("purge the events", compiled(delete(event).where(event.c.task.in_(_TASKS))), rows=None)

PURGE_TASKS = Statement("purge the tasks", compiled(delete(task).where(task.c.id.in_(_TASKS))), rows=None)

# --- a task that has ended is over its time: its conversation goes on without its public record ------------------------

DELETE_EVENTS = Statement(
    "drop the events of a task that has ended",
    compiled(
        delete(event).where(
            equals(event.c.task, "task"),
            ~exists(select(_ONE).select_from(task).where(equals(task.c.id, "task"), text(GOING))),
        )
    ),
    rows=None,
)

HIDE_TASK = Statement(
    "hide a task that has ended",
    compiled(
        update(task)
        .where(equals(task.c.id, "task"), task.c.visible == _ONE, text(ENDED))
        .values(visible=literal_column("0"), status_message=null())
    ),
    rows=None,
)

CLEAR_TURNS = Statement(
    "clear the record of its turns",
    compiled(
        update(turn)
        .where(equals(turn.c.task, "task"), turn.c.ended_at.is_not(None))
        .values(messages=word("[]"), artifacts=word("[]"))
    ),
    rows=None,
)

FREE_KEYS = Statement(
    "free the idempotency keys of its messages",
    compiled(
        update(input_)
        .where(input_.c.turn.in_(select(turn.c.id).where(equals(turn.c.task, "task"))), input_.c.key.is_not(None))
        .values(key=null(), key_kind=null())
    ),
    rows=None,
)
