"""The statements and queries of deletion and expiry. Law: a long conversation is deleted piece by piece, so that no other unit
waits for it; the queries have no indexes of their own, so that a turn does not pay for what runs once an hour.
"""

from sqlalchemy import and_, bindparam, delete, null, or_, select, text, tuple_, update

from storage.schema.conditions import TASK_ENDED, TASK_OPEN
from storage.schema.tables import (
    context,
    delete_job,
    event,
    history_item,
    input_,
    push_config,
    service_call,
    task,
    thread,
    tool_call,
    turn,
)
from storage.sql.fragments import ONE, ZERO, Write, deletion_jobs, given, job_of, limited, matches, some, there_is, word

# --- handles that backends have to delete ---

DELETIONS = limited(
    select(*some(delete_job, "id", "adapter", "handle", "due_at", "attempts"))
    # A deletion that was given up has no time.
    .where(delete_job.c.due_at > ZERO)
    .order_by(delete_job.c.due_at),
    bindparam("limit"),
)

MOVE_DELETION = Write(
    "move a deletion that is due",
    update(delete_job).where(matches(delete_job, id="job", due_at="due_at")).values(given("attempts", due_at="until")),
)

END_DELETION = Write(
    "end a deletion that is due", delete(delete_job).where(matches(delete_job, id="job", due_at="due_at"))
)


# --- what is over its time ---

_OWNER = (task.c.tenant, task.c.principal, task.c.agent)

NEXT_OWNER = limited(
    select(*_OWNER)
    .where(task.c.visible == ONE, tuple_(*_OWNER) > tuple_(*(bindparam(column.name) for column in _OWNER)))
    .order_by(*_OWNER)
)

ENDED_TASKS = limited(
    select(task.c.id, task.c.status_at, there_is(event, event.c.task == task.c.id))
    .where(
        *(column == bindparam(column.name) for column in _OWNER),
        task.c.visible == ONE,
        text(TASK_ENDED),
        task.c.status_at < bindparam("before"),
        # Pending push notifications are read from its log.
        ~there_is(push_config, push_config.c.task == task.c.id, push_config.c.due_at.is_not(None)),
        tuple_(task.c.status_at, task.c.id) > tuple_(bindparam("after_at"), bindparam("after_id")),
    )
    .order_by(task.c.status_at, task.c.id),
    bindparam("limit"),
)

_TURN_LEFT = there_is(thread.join(turn, turn.c.thread == thread.c.id), thread.c.context == context.c.id)

_TASK_LEFT = there_is(task, task.c.context == context.c.id, task.c.visible == ONE)

AGED_CONTEXTS = limited(
    select(
        *some(context, "id", "tenant", "principal", "public_id", "created_at"),
        and_(context.c.state == word("open"), context.c.last_used_at < bindparam("before")),
        and_(context.c.state.in_([word("expired"), word("deleted")]), or_(_TURN_LEFT, _TASK_LEFT)),
    )
    .where(context.c.id > bindparam("after"))
    .order_by(context.c.id),
    bindparam("limit"),
)

PURGE_PENDING = select(or_(_TURN_LEFT, _TASK_LEFT)).where(context.c.id == bindparam("context"))


# --- a context becomes a tombstone ---

_IN_CONTEXT = matches(thread, context="context")

_THREAD_OF_TURN = turn.c.thread == thread.c.id

_CALL_OF_TURN = service_call.c.turn == turn.c.id

DELETE_CONTEXT = Write(
    "delete a context of the caller",
    update(context)
    .where(matches(context, id="context", tenant="tenant", principal="principal"), context.c.state != word("deleted"))
    .values(state=word("deleted"), last_used_at=bindparam("now")),
)

EXPIRE_CONTEXT = Write(
    "expire an unused context",
    update(context)
    .where(
        matches(context, id="context"),
        context.c.state == word("open"),
        context.c.last_used_at < bindparam("idle_before"),
    )
    .values(state=word("expired")),
)

# A rotating handle is in the row of the call that confirmed it, or was adopted and is not the gateway's to delete.
DELETE_STATIC_HANDLES = deletion_jobs(
    "queue the handles of threads for deletion",
    job_of(thread.c.handle).where(_IN_CONTEXT, thread.c.handle_kind == word("static")),
)

CLOSE_THREADS = Write(
    "close the threads, in their next generation",
    update(thread)
    .where(_IN_CONTEXT)
    .values(
        state=bindparam("state"),
        generation=thread.c.generation + ONE,
        **dict.fromkeys(
            (
                *("handle", "clean_handle", "adapter_state", "state_version", "adapter_secret"),
                *("lease_holder", "lease_until"),
            ),
            null(),
        ),
    ),
    rows=None,
)


# --- its conversation is purged: items, then turns without items, then tasks without turns ---

PURGE_ITEMS = Write(
    "purge the items",
    delete(history_item).where(
        tuple_(history_item.c.thread, history_item.c.position).in_(
            limited(
                select(history_item.c.thread, history_item.c.position)
                .select_from(thread.join(history_item, history_item.c.thread == thread.c.id))
                .where(_IN_CONTEXT),
                bindparam("item_limit"),
            )
        )
    ),
    rows=None,
)

_TURNS = limited(
    select(turn.c.id)
    .select_from(thread.join(turn, _THREAD_OF_TURN))
    .where(_IN_CONTEXT, ~there_is(history_item, history_item.c.thread == thread.c.id))
    .order_by(thread.c.agent, thread.c.epoch, turn.c.number),
    bindparam("limit"),
)

_CALLS = select(service_call.c.id).where(service_call.c.turn.in_(_TURNS))

_PURGED_CALLS = turn.join(thread, _THREAD_OF_TURN).join(service_call, _CALL_OF_TURN)

# Also of epochs before the gateway kept the history: a confirmed handle is always a backend's.
DELETE_CONFIRMED_HANDLES = deletion_jobs(
    "queue the handles of completed calls for deletion",
    job_of(service_call.c.handle_out).select_from(_PURGED_CALLS).where(turn.c.id.in_(_TURNS)),
)

DELETE_PENDING_HANDLES = deletion_jobs(
    "queue the handles of other calls for deletion",
    job_of(service_call.c.pending_handle)
    .select_from(_PURGED_CALLS)
    .where(turn.c.id.in_(_TURNS), thread.c.storage_owner == word("backend")),
)

PURGE_TOOL_CALLS = Write(
    "purge the tool calls", delete(tool_call).where(tool_call.c.service_call.in_(_CALLS)), rows=None
)

PURGE_CALLS = Write("purge the service calls", delete(service_call).where(service_call.c.turn.in_(_TURNS)), rows=None)

PURGE_INPUTS = Write("purge the messages", delete(input_).where(input_.c.turn.in_(_TURNS)), rows=None)

# Turns refer to tasks and are deleted first; after that, only the index of the visible tasks finds the tasks of the
# context.
MAKE_TASKS_VISIBLE = Write(
    "make the tasks of the turns visible",
    update(task).where(task.c.id.in_(select(turn.c.task).where(turn.c.id.in_(_TURNS)))).values(visible=ONE),
    rows=None,
)

PURGE_TURNS = Write("purge the turns", delete(turn).where(turn.c.id.in_(_TURNS)), rows=None)

_TASKS = limited(
    select(task.c.id)
    .where(
        matches(task, context="context"),
        task.c.visible == ONE,
        ~there_is(thread.join(turn, _THREAD_OF_TURN), _IN_CONTEXT),
    )
    .order_by(task.c.agent, task.c.status_at, task.c.id),
    bindparam("limit"),
)

PURGE_EVENTS = Write("purge the events", delete(event).where(event.c.task.in_(_TASKS)), rows=None)

PURGE_TASKS = Write("purge the tasks", delete(task).where(task.c.id.in_(_TASKS)), rows=None)


# --- an ended task expires: its conversation continues without its public record ---

DELETE_EVENTS = Write(
    "delete the events of a task that has ended",
    delete(event).where(matches(event, task="task"), ~there_is(task, matches(task, id="task"), text(TASK_OPEN))),
    rows=None,
)

HIDE_TASK = Write(
    "hide a task that has ended",
    update(task)
    .where(matches(task, id="task"), task.c.visible == ONE, text(TASK_ENDED))
    .values(visible=ZERO, status_message=null()),
    rows=None,
)

CLEAR_TURNS = Write(
    "clear the record of its turns",
    update(turn)
    .where(matches(turn, task="task"), turn.c.ended_at.is_not(None))
    .values(messages=word("[]"), artifacts=word("[]")),
    rows=None,
)

FREE_KEYS = Write(
    "free the idempotency keys of its messages",
    update(input_)
    .where(input_.c.turn.in_(select(turn.c.id).where(matches(turn, task="task"))), input_.c.key.is_not(None))
    .values(key=null(), key_kind=null()),
    rows=None,
)
