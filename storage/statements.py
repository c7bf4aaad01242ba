"""Every statement that a commit point uses. Law: each says how many rows it must touch.

Parameters are named as the fields of the commit points; those of an event's row begin with `event_`.
"""

from sqlalchemy import (
    Column,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.expression import ColumnElement

from gateway.quarantine import TRIES
from storage.sql import (
    compiled,
    context,
    delete_job,
    equals,
    event,
    given,
    history_item,
    input_,
    lapsed,
    process,
    secret,
    service_call,
    task,
    thread,
    thread_in_generation,
    tool_call,
    turn,
    word,
)
from storage.statement import Statement
from storage.tables import GOING, LIVE, SETTLED, UNDER_WAY, UNFINISHED, WAITING

_UNSETTLED = "status IN ('prepared', 'sent', 'started', 'emitting', 'unknown')"
"""Of a service call: 'unknown' is not final, evidence may still come."""


def _next(column: Column[object], of: ColumnElement[bool]) -> ColumnElement[object]:
    largest = func.coalesce(func.max(column), literal_column("0"))
    return select(largest + literal_column("1")).where(of).scalar_subquery()


# --- a message is accepted --------------------------------------------------------------------------------------------

_OWNED = ("tenant", "principal")

NEW_CONTEXT = Statement(
    "make the context",
    compiled(
        insert(context).values(
            id=bindparam("context"),
            **given(*_OWNED, "public_id"),
            state=word("open"),
            created_at=bindparam("now"),
            last_used_at=bindparam("now"),
        )
    ),
)

USE_CONTEXT = Statement(
    "use an open context of the caller",
    compiled(
        update(context)
        .where(
            equals(context.c.id, "context"),
            *(equals(context.c[name], name) for name in _OWNED),
            context.c.state == word("open"),
        )
        .values(last_used_at=bindparam("now"))
    ),
)

NEW_THREAD = Statement(
    "make the thread",
    compiled(
        insert(thread).values(
            id=bindparam("thread"),
            **given("context", "agent", "epoch", "storage_owner", "handle_kind", "handle"),
            clean_handle=bindparam("handle"),
            **given("generation", "adapter_state", "state_version", "lease_holder", "lease_until"),
            state=word("open"),
        )
    ),
)

NEW_TASK = Statement(
    "make the task",
    compiled(
        insert(task).values(
            id=bindparam("task"),
            **given("context", *_OWNED, "agent", "visible", "last_event"),
            created_at=bindparam("now"),
            state=bindparam("state"),
            status_at=bindparam("now"),
        )
    ),
)

CONTINUE_TASK = Statement(
    "continue a task of the caller that has not ended",
    compiled(
        update(task)
        .where(
            equals(task.c.id, "task"),
            equals(task.c.context, "context"),
            *(equals(task.c[name], name) for name in (*_OWNED, "agent")),
            text(GOING),
        )
        .values(
            state=word("TASK_STATE_WORKING"),
            status_message=null(),
            status_at=bindparam("now"),
            last_event=bindparam("last_event"),
        )
    ),
)

NEW_TURN = Statement(
    "open a turn on the live thread of this context and agent",
    compiled(
        insert(turn).from_select(
            ["id", "task", "thread", "number", "status", "base_generation", "process", "cancel_asked", "accepted_at"],
            select(
                bindparam("turn"),
                bindparam("task"),
                thread.c.id,
                _next(turn.c.number, equals(turn.c.thread, "thread")),
                bindparam("turn_status"),
                bindparam("base_generation"),
                bindparam("process"),
                literal_column("0"),
                bindparam("now"),
            ).where(
                equals(thread.c.id, "thread"),
                equals(thread.c.context, "context"),
                equals(thread.c.agent, "agent"),
                text(LIVE),
            ),
        )
    ),
)

NEW_INPUT = Statement(
    "store the message",
    compiled(
        insert(input_)
        .inline()
        .values(
            ordinal=literal_column("0"),
            **given("turn", *_OWNED, "agent", "message_id", "digest", "key_kind", "key"),
            received_at=bindparam("now"),
            event=bindparam("last_event"),
            preferences=bindparam("preferences"),
            payload=bindparam("message"),
        )
    ),
)

_POSITION = _next(history_item.c.position, equals(history_item.c.thread, "thread"))

NEW_USER_ITEM = Statement(
    "put the message into the thread",
    compiled(
        insert(history_item)
        .inline()
        .values(
            position=_POSITION,
            **given("thread", "turn"),
            input=literal_column("0"),
            kind=word("user"),
            replayable=literal_column("1"),
            weight=bindparam("weight"),
        )
    ),
)

# --- a service call ---------------------------------------------------------------------------------------------------

TAKE_LEASE = Statement(
    "take the thread's lease",
    compiled(
        update(thread)
        .where(
            equals(thread.c.id, "thread"),
            equals(thread.c.generation, "generation"),
            or_(
                thread.c.lease_holder.is_(None),
                equals(thread.c.lease_holder, "holder"),
                lapsed(thread.c.lease_until),
            ),
        )
        .values(
            lease_holder=bindparam("holder"),
            lease_until=bindparam("lease_until"),
            generation=thread.c.generation + literal_column("1"),
        )
    ),
)

KEEP_LEASE = Statement(
    "keep the thread's lease",
    compiled(
        update(thread)
        .where(
            equals(thread.c.id, "thread"),
            equals(thread.c.generation, "generation"),
            equals(thread.c.lease_holder, "holder"),
        )
        .values(lease_until=bindparam("lease_until"))
    ),
)

_earlier = turn.alias("earlier")

RUN_TURN = Statement(
    "run a turn of the holder's that has not ended, behind all earlier ones of its thread",
    compiled(
        update(turn)
        .where(
            equals(turn.c.id, "turn"),
            equals(turn.c.task, "task"),
            equals(turn.c.thread, "thread"),
            equals(turn.c.process, "holder"),
            text(UNFINISHED),
            ~exists(
                select(literal_column("1"))
                .select_from(_earlier)
                .where(
                    equals(_earlier.c.thread, "thread"),
                    _earlier.c.ended_at.is_(None),
                    _earlier.c.number < turn.c.number,
                )
            ),
        )
        .values(status=word("running"), base_generation=bindparam("base_generation"))
    ),
)

START_TASK = Statement(
    "set a task to work that has not ended",
    compiled(
        update(task)
        .where(equals(task.c.id, "task"), text(GOING))
        .values(state=word("TASK_STATE_WORKING"), status_message=null(), status_at=bindparam("now"))
    ),
)

NEW_CALL = Statement(
    "prepare the service call",
    compiled(
        insert(service_call).values(
            id=bindparam("service_call"),
            **given("turn", "round", "attempt", "handle_in"),
            status=word("prepared"),
            prepared_at=bindparam("now"),
        )
    ),
)

CALL_STARTED = Statement(
    "note the pending handle of a service call under way",
    compiled(
        update(service_call)
        .where(equals(service_call.c.id, "service_call"), text(UNDER_WAY))
        .values(status=word("started"), pending_handle=bindparam("pending_handle"))
    ),
)

MOVE_HANDLE = Statement(
    "move the thread's handle from where the call began",
    compiled(
        update(thread)
        .where(
            equals(thread.c.id, "thread"),
            equals(thread.c.generation, "generation"),
            thread.c.handle.is_not_distinct_from(bindparam("handle_in")),
        )
        .values(
            handle=bindparam("handle_out"),
            clean_handle=case(
                (bindparam("clean") == literal_column("1"), bindparam("handle_out")), else_=thread.c.clean_handle
            ),
            adapter_state=func.coalesce(bindparam("adapter_state"), thread.c.adapter_state),
            state_version=func.coalesce(bindparam("state_version"), thread.c.state_version),
            # Whoever read the row before does not know where the conversation stands.
            generation=thread.c.generation + literal_column("1"),
        )
    ),
)

# What the backend named before, unless it is named just now.
_PENDING: dict[str, ColumnElement[object]] = {
    "pending_handle": func.coalesce(bindparam("pending_handle"), service_call.c.pending_handle)
}

_THE_CALL = and_(equals(service_call.c.id, "service_call"), equals(service_call.c.turn, "turn"), text(_UNSETTLED))

CALL_COMPLETED = Statement(
    "complete the service call",
    compiled(
        update(service_call)
        .where(_THE_CALL)
        .values(
            status=word("completed"), ended_at=bindparam("now"), **given("handle_out", "usage", "weight"), **_PENDING
        )
    ),
)

CALL_FAILED = Statement(
    "fail the service call, in the thread's generation",
    compiled(
        update(service_call)
        .where(_THE_CALL, thread_in_generation)
        .values(ended_at=bindparam("now"), **given("status", "error_class"), **_PENDING)
    ),
)

NEW_TOOL_CALL = Statement(
    "record the tool call",
    compiled(
        insert(tool_call).values(
            **given(
                "id",
                "service_call",
                "sequence",
                "external_id",
                "name",
                "arguments",
                "executor",
                "server",
                "status",
                "runs_left",
                "outcome",
                "approval_required",
                "digest",
                "approval_expires_at",
            ),
        )
    ),
)

NEW_ITEM = Statement(
    "append the item to the thread",
    compiled(
        insert(history_item)
        .inline()
        .values(
            position=_POSITION,
            item_group=bindparam("service_call"),
            **given(
                "thread",
                "turn",
                "service_call",
                "tool_call",
                "kind",
                "provider_id",
                "replayable",
                "sent_in",
                "weight",
                "payload",
            ),
        )
    ),
)

ITEMS_SENT = Statement(
    "mark the items of the request as sent",
    compiled(
        update(history_item)
        .where(
            equals(history_item.c.thread, "thread"),
            history_item.c.sent_in.is_(None),
            history_item.c.position.in_(
                select(func.json_each(bindparam("sent")).table_valued("value", name="positions").c.value)
            ),
        )
        .values(sent_in=bindparam("service_call"))
    ),
    rows=None,
)

# --- the tools between two service calls ------------------------------------------------------------------------------

START_TOOL = Statement(
    "start a tool call that may run, in the thread's generation",
    compiled(
        update(tool_call)
        .where(
            equals(tool_call.c.id, "tool_call"),
            # One that runs already has lost its process: whoever starts it has the lease.
            tool_call.c.status.in_([word("announced"), word("approved"), word("running")]),
            tool_call.c.runs_left > literal_column("0"),
            thread_in_generation,
        )
        .values(
            status=word("running"),
            runs_left=tool_call.c.runs_left - literal_column("1"),
            approval_consumed_at=case((tool_call.c.approval_decision.is_not(None), bindparam("now"))),
        )
    ),
)

END_TOOL = Statement(
    "give an open tool call its outcome, in the thread's generation",
    compiled(
        update(tool_call)
        .where(
            equals(tool_call.c.id, "tool_call"),
            equals(tool_call.c.service_call, "service_call"),
            text(f"NOT ({SETTLED})"),
            thread_in_generation,
        )
        .values(**given("status", "outcome"))
    ),
)

SUSPEND_TURN = Statement(
    "let a turn wait that runs",
    compiled(
        update(turn)
        .where(equals(turn.c.id, "turn"), equals(turn.c.task, "task"), turn.c.status == word("running"))
        .values(status=word("waiting"), tries=literal_column("0"))
    ),
)

ASK_CALLER = Statement(
    "let a task wait for its caller that has not ended",
    compiled(
        update(task)
        .where(equals(task.c.id, "task"), text(GOING))
        .values(status_at=bindparam("now"), visible=literal_column("1"), **given("state", "status_message"))
    ),
)

TAKE_TURN = Statement(
    "take over a turn that runs",
    compiled(
        update(turn)
        .where(equals(turn.c.id, "turn"), equals(turn.c.thread, "thread"), turn.c.status == word("running"))
        .values(**given("tries"), process=bindparam("holder"), base_generation=bindparam("base_generation"))
    ),
)

CLAIM_TURN = Statement(
    "take a turn that waits from a process that died",
    compiled(
        update(turn)
        .where(
            equals(turn.c.id, "turn"),
            turn.c.status == word("accepted"),
            equals(turn.c.process, "left_by"),
            ~exists(
                select(literal_column("1"))
                .select_from(process)
                .where(equals(process.c.id, "left_by"), process.c.alive_until >= bindparam("now"))
            ),
        )
        .values(process=bindparam("process"), tries=literal_column("0"))
    ),
)

COUNT_TRIES = Statement(
    "count the tries of a turn that was left",
    compiled(
        update(turn)
        .where(equals(turn.c.id, "turn"), equals(turn.c.tries, "before"), turn.c.ended_at.is_(None))
        .values(**given("tries"))
    ),
)

RESUME_TURN = Statement(
    "go on with a turn that waited",
    compiled(
        update(turn)
        .where(
            equals(turn.c.id, "turn"),
            equals(turn.c.task, "task"),
            equals(turn.c.thread, "thread"),
            turn.c.status == word("waiting"),
        )
        .values(status=word("running"), process=bindparam("holder"), base_generation=bindparam("base_generation"))
    ),
)

# --- a turn ends ------------------------------------------------------------------------------------------------------

END_TURN = Statement(
    "end a turn that has not ended",
    compiled(
        update(turn)
        .where(
            equals(turn.c.id, "turn"),
            equals(turn.c.task, "task"),
            equals(turn.c.thread, "thread"),
            turn.c.ended_at.is_(None),
            or_(bindparam("process").is_(None), equals(turn.c.process, "process")),
        )
        .values(ended_at=bindparam("now"), **given("status", "failure_class", "last_event", "messages", "artifacts"))
    ),
)

FORGET_CALLS = Statement(
    "leave no service call of an ended turn under way",
    compiled(
        update(service_call)
        .where(equals(service_call.c.turn, "turn"), text(UNDER_WAY))
        .values(status=word("unknown"), ended_at=bindparam("now"))
    ),
    rows=None,
)

CANCEL_TURNS = Statement(
    "end the other turns of the task",
    compiled(
        update(turn)
        .where(equals(turn.c.task, "task"), turn.c.id != bindparam("turn"), turn.c.ended_at.is_(None))
        .values(
            status=word("cancelled"),
            ended_at=bindparam("now"),
            last_event=bindparam("last_event"),
            messages=word("[]"),
            artifacts=word("[]"),
        )
    ),
    rows=None,
)

_STATUS = given("state", "status_message", "last_event", "visible")

END_TASK = Statement(
    "set the state of a task that has not ended",
    compiled(update(task).where(equals(task.c.id, "task"), text(GOING)).values(status_at=bindparam("now"), **_STATUS)),
)

SETTLE_TASK = Statement(
    "set the state of a task that has not ended and has no other turn to run",
    compiled(
        update(task)
        .where(
            equals(task.c.id, "task"),
            text(GOING),
            ~exists(
                select(literal_column("1"))
                .select_from(turn)
                .where(equals(turn.c.task, "task"), turn.c.id != bindparam("turn"), turn.c.ended_at.is_(None))
            ),
        )
        .values(status_at=bindparam("now"), **_STATUS)
    ),
)

PASS_TASK = Statement(
    "hand a task that has not ended to its next turn",
    compiled(update(task).where(equals(task.c.id, "task"), text(GOING)).values(last_event=bindparam("last_event"))),
)

CLOSE_TASK = Statement(
    "end a task that waits",
    compiled(
        update(task)
        .where(equals(task.c.id, "task"), text(WAITING))
        .values(status_message=null(), status_at=bindparam("now"), **given("state", "last_event"))
    ),
)

# --- a thread that cannot simply go on --------------------------------------------------------------------------------

_IN_GENERATION = and_(equals(thread.c.id, "thread"), equals(thread.c.generation, "generation"))

LOSE_HANDLE = Statement(
    "note that the thread's handle is lost",
    compiled(update(thread).where(_IN_GENERATION, text(LIVE)).values(state=word("lost"))),
)

UNSYNC = Statement(
    "note that the end of a service call of the turn was not heard",
    compiled(
        update(thread)
        .where(
            equals(thread.c.id, "thread"),
            thread.c.storage_owner == word("backend"),
            thread.c.state == word("open"),
            exists(
                select(literal_column("1"))
                .select_from(service_call)
                .where(
                    equals(service_call.c.turn, "turn"),
                    service_call.c.status == word("unknown"),
                    or_(
                        service_call.c.pending_handle.is_not(None),
                        and_(thread.c.handle_kind == word("static"), thread.c.handle.is_not(None)),
                    ),
                )
            ),
        )
        .values(state=word("unsynced"))
    ),
    rows=None,
)

SYNCED = Statement(
    "note that the thread's last service call was looked up",
    compiled(update(thread).where(_IN_GENERATION, thread.c.state == word("unsynced")).values(state=word("open"))),
)

NEXT_EPOCH = Statement(
    "count the thread's next epoch",
    compiled(
        update(thread)
        .where(_IN_GENERATION, text(LIVE))
        .values(epoch=thread.c.epoch + literal_column("1"), generation=thread.c.generation + literal_column("1"))
    ),
)

_KEPT = (
    "context",
    "agent",
    "storage_owner",
    "handle_kind",
    "handle",
    "clean_handle",
    "generation",
    "adapter_state",
    "state_version",
)

KEEP_EPOCH = Statement(
    "keep the epoch that ends",
    compiled(
        insert(thread).from_select(
            ["id", "epoch", "state", *_KEPT],
            select(
                bindparam("closed"),
                thread.c.epoch - literal_column("1"),
                word("closed"),
                *(thread.c[name] for name in _KEPT),
            ).where(equals(thread.c.id, "thread")),
        )
    ),
)

BEGIN_EPOCH = Statement(
    "begin the thread's epoch",
    compiled(
        update(thread)
        .where(equals(thread.c.id, "thread"))
        .values(
            **given("storage_owner", "handle_kind", "handle"),
            clean_handle=bindparam("handle"),
            adapter_state=null(),
            state_version=null(),
            state=word("open"),
        )
    ),
)

LEAVE_BRANCH = Statement(
    "leave the handles of the turn for deletion",
    compiled(
        sqlite.insert(delete_job)
        .from_select(
            ["id", "adapter", "handle", "due_at", "attempts"],
            select(
                thread.c.id + literal_column("' '") + service_call.c.handle_out,
                thread.c.agent,
                service_call.c.handle_out,
                bindparam("now"),
                literal_column("0"),
            )
            .select_from(service_call.join(thread, equals(thread.c.id, "thread")))
            .where(equals(service_call.c.turn, "turn"), service_call.c.handle_out.is_not(None))
            .where(service_call.c.handle_out.is_distinct_from(service_call.c.handle_in)),
        )
        .on_conflict_do_nothing()
    ),
    rows=None,
)

WAY_BACK = Statement(
    "take the thread's handle back to where the turn began",
    compiled(
        update(thread)
        .where(equals(thread.c.id, "thread"), thread.c.handle.is_distinct_from(bindparam("handle")))
        .values(
            handle=bindparam("handle"),
            clean_handle=bindparam("handle"),
            generation=thread.c.generation + literal_column("1"),
        )
    ),
    rows=None,
)

_JOB = bindparam("thread").op("||")(literal_column("' '")).op("||")(bindparam("handle"))

NEW_ORPHAN = Statement(
    "leave a handle for deletion that no call of the thread has led to",
    compiled(
        sqlite.insert(delete_job)
        .from_select(
            ["id", "adapter", "handle", "due_at", "attempts"],
            select(_JOB, bindparam("agent"), bindparam("handle"), bindparam("now"), literal_column("0")).where(
                # Another process may have found it meanwhile, and gone on from it.
                ~exists(
                    select(literal_column("1"))
                    .select_from(service_call.join(turn, turn.c.id == service_call.c.turn))
                    .where(equals(turn.c.thread, "thread"), equals(service_call.c.handle_out, "handle"))
                )
            ),
        )
        .on_conflict_do_nothing()
    ),
    rows=None,
)

KEEP_HANDLE = Statement(
    "keep a handle that was left for deletion", compiled(delete(delete_job).where(delete_job.c.id == _JOB)), None
)

# --- the rest ---------------------------------------------------------------------------------------------------------

NEW_EVENTS = Statement(
    "append the events behind the last one",
    compiled(
        insert(event).from_select(
            ["task", "first", "last", "payload"],
            select(*(bindparam(f"event_{name}") for name in ("task", "first", "last", "payload"))).where(
                # A group that was lost leaves no gap: what follows it is lost as well.
                _next(event.c.last, equals(event.c.task, "event_task")) == bindparam("event_first")
            ),
        )
    ),
)

RENEW_LEASE = Statement(
    "renew the holder's lease",
    compiled(
        update(thread)
        .where(equals(thread.c.id, "thread"), equals(thread.c.lease_holder, "holder"))
        .values(lease_until=bindparam("lease_until"))
    ),
    rows=None,
)

RELEASE_LEASE = Statement(
    "give up the lease",
    compiled(
        update(thread)
        .where(equals(thread.c.id, "thread"), equals(thread.c.lease_holder, "holder"))
        .values(lease_holder=null(), lease_until=null())
    ),
    rows=None,
)

FENCE_OFF = Statement(
    "take an expired lease from its holder",
    compiled(
        update(thread)
        .where(
            equals(thread.c.id, "thread"),
            equals(thread.c.generation, "generation"),
            or_(thread.c.lease_holder.is_(None), lapsed(thread.c.lease_until)),
        )
        .values(lease_holder=null(), lease_until=null(), generation=thread.c.generation + literal_column("1"))
    ),
)

BEAT = Statement(
    "say that the process lives",
    compiled(
        sqlite.insert(process)
        .values(**given("alive_until"), id=bindparam("process"))
        .on_conflict_do_update(index_elements=["id"], set_={"alive_until": bindparam("alive_until")})
    ),
)

FORGET_PROCESSES = Statement(
    "forget the processes that died", compiled(delete(process).where(lapsed(process.c.alive_until))), None
)

ASK_CANCEL = Statement(
    "ask the process that runs the turn to cancel it",
    compiled(
        update(turn)
        .where(equals(turn.c.id, "turn"), turn.c.ended_at.is_(None))
        # Who is put aside may be tried once more.
        .values(cancel_asked=literal_column("1"), tries=func.min(turn.c.tries, literal_column(str(TRIES - 1))))
    ),
    rows=None,
)

PROBE = Statement(
    "write something",
    compiled(
        sqlite.insert(secret)
        .inline()
        .values(name=word("probe"), value=func.randomblob(literal_column("32")))
        .on_conflict_do_update(index_elements=["name"], set_={"value": func.randomblob(literal_column("32"))})
    ),
)

NEW_SECRET = Statement(
    "make the secret where there is none",
    compiled(sqlite.insert(secret).values(**given("name", "value")).on_conflict_do_nothing()),
    rows=None,
)
