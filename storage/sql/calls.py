"""The statements of a service call, from the thread's lease to its end, and of its tool calls. Law: as in `statements`."""

from sqlalchemy import and_, bindparam, case, exists, func, insert, literal_column, null, or_, select, text, update
from sqlalchemy.sql.expression import ColumnElement

from storage.schema.conditions import GOING, SETTLED, UNDER_WAY, UNFINISHED
from storage.sql.fragments import (
    compiled,
    equals,
    given,
    history_item,
    lapsed,
    next_position,
    service_call,
    task,
    thread,
    thread_in_generation,
    tool_call,
    turn,
    word,
)
from storage.statement import Statement

_UNSETTLED = "status IN ('prepared', 'started', 'unknown')"
"""Of a service call: 'unknown' is not final, evidence may still come."""

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

SET_PENDING_HANDLE = Statement(
    "note the pending handle of a service call under way",
    compiled(
        update(service_call)
        .where(equals(service_call.c.id, "service_call"), text(UNDER_WAY))
        .values(status=word("started"), pending_handle=bindparam("handle"))
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

COMPLETE_CALL = Statement(
    "complete the service call",
    compiled(
        update(service_call)
        .where(_THE_CALL)
        .values(
            status=word("completed"), ended_at=bindparam("now"), **given("handle_out", "usage", "weight"), **_PENDING
        )
    ),
)

FAIL_CALL = Statement(
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
            position=next_position,
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

MARK_SENT = Statement(
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
