"""The statements of a service call and its tool calls. Law: as in `sql/turns.py`."""

from typing import Any

from sqlalchemy import BigInteger, and_, bindparam, case, func, insert, null, text, update
from sqlalchemy.sql.expression import ColumnElement

from storage.schema.conditions import CALL_UNDER_WAY, ITEM_UNSENT, TOOL_CALL_SETTLED, one_of
from storage.schema.tables import history_item, service_call, thread, tool_call
from storage.sql.fragments import (
    ONE,
    ZERO,
    Write,
    given,
    in_generation,
    json_numbers,
    matches,
    next_position,
    word,
)

_UNSETTLED = one_of("status", "prepared", "started", "unknown")
"""The condition that the outcome of a service call may still become known; an unknown outcome may."""

NEW_CALL = Write(
    "prepare the service call",
    insert(service_call).values(
        **given("turn", "round", "attempt", "handle_in", id="service_call", prepared_at="now"), status=word("prepared")
    ),
)


def _names(handle: str) -> dict[str, ColumnElement[object]]:
    """The names in this unit, or those that the backend gave before. `handle` is the parameter of the pending handle."""
    return {
        "pending_handle": func.coalesce(bindparam(handle), service_call.c.pending_handle),
        "run": func.coalesce(bindparam("run"), service_call.c.run),
    }


NAME_CALL = Write(
    "note the names of a service call under way",
    update(service_call)
    .where(matches(service_call, id="service_call"), text(CALL_UNDER_WAY))
    .values(status=word("started"), **_names("handle")),
)


def _unless_released(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((thread.c.lease_holder == bindparam("released_by"), null()), else_=column)


MOVE_HANDLE = Write(
    "move the thread's handle from where the call began",
    update(thread)
    .where(
        matches(thread, id="thread", generation="generation"),
        thread.c.handle.is_not_distinct_from(bindparam("handle_in")),
    )
    .values(
        handle=bindparam("handle_out"),
        clean_handle=case((bindparam("clean") == ONE, bindparam("handle_out")), else_=thread.c.clean_handle),
        adapter_state=func.coalesce(bindparam("adapter_state"), thread.c.adapter_state),
        state_version=func.coalesce(bindparam("state_version"), thread.c.state_version),
        adapter_secret=func.coalesce(bindparam("secret"), thread.c.adapter_secret),
        # A process that read the row before does not know the state of the conversation.
        generation=thread.c.generation + ONE,
        # The unit that ends the turn releases the lease of its holder.
        lease_holder=_unless_released(thread.c.lease_holder),
        lease_until=_unless_released(thread.c.lease_until),
    ),
)

_THE_CALL = and_(matches(service_call, id="service_call", turn="turn"), text(_UNSETTLED))

COMPLETE_CALL = Write(
    "complete the service call",
    update(service_call)
    .where(_THE_CALL)
    .values(
        **given("handle_out", "usage", "weight", "first_at", ended_at="now"),
        status=word("completed"),
        **_names("pending_handle"),
    ),
)

FAIL_CALL = Write(
    "fail the service call, in the thread's generation",
    update(service_call)
    .where(_THE_CALL, in_generation)
    .values(
        **given("status", "error_class", "first_at", ended_at="now"),
        usage=func.coalesce(bindparam("usage"), service_call.c.usage),
        **_names("pending_handle"),
    ),
)

NEW_TOOL_CALL = Write(
    "record the tool call",
    insert(tool_call).values(
        **given("id", "service_call", "sequence", "external_id", "name", "arguments", "executor", "server", "status"),
        **given("runs_left", "outcome", "approval_required", "digest", "approval_expires_at"),
        **given("asked_at", "started_at", "ended_at"),
    ),
)

NEW_ITEM = Write(
    "append the item to the thread",
    insert(history_item)
    .inline()
    .values(
        **given("thread", "turn", "service_call", "tool_call", "kind", "provider_id", "replayable", "sent_in"),
        **given("weight", "payload", item_group="service_call"),
        position=next_position,
    ),
)

_SENT = (
    update(history_item)
    .where(matches(history_item, thread="thread"), history_item.c.sent_in.is_(None))
    .values(sent_in=bindparam("service_call"))
)

MARK_SENT = Write(
    "mark the items of the request as sent",
    _SENT.where(history_item.c.position.in_(json_numbers("sent", "positions"))),
    rows=None,
)

MARK_ONE_SENT = Write(
    "mark the item of the request as sent", _SENT.where(matches(history_item, position="sent")), rows=None
)

_IS_OUTPUT = history_item.c.kind == word("output")

# An output stays, since its call has to be answered; its place takes a text of this weight.
MARK_REFUSED = Write(
    "mark the items of the request as refused",
    update(history_item)
    .where(
        matches(history_item, thread="thread"),
        history_item.c.sent_in.is_(None),
        history_item.c.position.in_(json_numbers("positions", "refused")),
    )
    .values(
        refused_in=bindparam("service_call"),
        replayable=case((_IS_OUTPUT, history_item.c.replayable), else_=ZERO),
        weight=case((_IS_OUTPUT, bindparam("weight", type_=BigInteger)), else_=history_item.c.weight),
    ),
    rows=None,
)

# Whole turns: an output goes with its call.
SET_ASIDE = Write(
    "set items aside that earlier requests carried",
    update(history_item)
    .where(matches(history_item, thread="thread"), history_item.c.position.in_(json_numbers("positions", "refused")))
    .values(refused_in=bindparam("service_call"), replayable=ZERO),
    rows=None,
)

DROP_PARTIAL = Write(
    "leave the part of an answer out that is found as a whole",
    update(history_item)
    .where(matches(history_item, thread="thread", service_call="service_call"), text(ITEM_UNSENT))
    .where(history_item.c.kind == word("assistant"))
    .values(replayable=ZERO),
    rows=None,
)

GIVE_BACK = Write(
    "give the items back to the conversation",
    update(history_item)
    .where(matches(history_item, thread="thread"), history_item.c.position.in_(json_numbers("positions", "given_back")))
    .values(refused_in=null(), replayable=ONE),
    rows=None,
)

START_TOOL = Write(
    "start a tool call that may run, in the thread's generation",
    update(tool_call)
    .where(
        matches(tool_call, id="tool_call"),
        # A running one has lost its process, as the caller of this statement has the lease.
        text(one_of("status", "announced", "approved", "running")),
        tool_call.c.runs_left > ZERO,
        in_generation,
    )
    .values(
        status=word("running"),
        runs_left=tool_call.c.runs_left - ONE,
        approval_consumed_at=case((tool_call.c.approval_decision.is_not(None), bindparam("now", type_=BigInteger))),
        started_at=bindparam("now"),
    ),
)

REPORT_TOOL = Write(
    "give a tool call of the backend's the outcome that was not known, in the thread's generation",
    update(tool_call)
    .where(matches(tool_call, id="tool_call"), tool_call.c.status == word("external"), in_generation)
    .values(**given("status", "outcome", ended_at="at")),
)

END_TOOL = Write(
    "give an open tool call its outcome, in the thread's generation",
    update(tool_call)
    .where(
        matches(tool_call, id="tool_call", service_call="service_call"),
        text(f"NOT {TOOL_CALL_SETTLED}"),
        in_generation,
    )
    .values(**given("status", "outcome", ended_at="at")),
)
