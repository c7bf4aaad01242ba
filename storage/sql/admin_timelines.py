"""The queries of a task for operators: its rows without their long texts, and those texts in pieces. Law: as in
`sql/tasks.py`."""

from typing import Any

from sqlalchemy import Column, Integer, Select, bindparam, case, func, literal_column, select
from sqlalchemy.sql.expression import ColumnElement, FromClause

from storage.schema.tables import (
    context,
    event,
    history_item,
    input_,
    service_call,
    task,
    thread,
    tool_call,
    turn,
    turn_note,
)
from storage.sql.admin_contexts import CORRELATION_ID, IN_TENANT
from storage.sql.fragments import (
    ONE,
    ZERO,
    as_number,
    json_numbers,
    json_values,
    limited,
    matches,
    some,
    word,
)

_OF_TASK = task.join(context, context.c.id == task.c.context)


def _edge_of_log(value: ColumnElement[int]) -> ColumnElement[int]:
    return func.coalesce(select(value).where(event.c.task == task.c.id).scalar_subquery(), ZERO)


_LATEST_FAILURE = limited(
    select(CORRELATION_ID)
    .where(turn.c.task == task.c.id, turn.c.status == word("failed"))
    .order_by(turn.c.number.desc())
).scalar_subquery()

ADMIN_TASK = (
    select(
        *some(task, "id", "context"),
        *some(context, "public_id", "tenant", "principal"),
        *some(task, "agent", "visible", "state", "status_at", "created_at"),
        func.coalesce(
            limited(select(event.c.first).where(event.c.task == task.c.id).order_by(event.c.last)).scalar_subquery(),
            ZERO,
        ),
        _edge_of_log(func.max(event.c.last)),
        _LATEST_FAILURE,
    )
    .select_from(_OF_TASK)
    .where(task.c.id == bindparam("task"), IN_TENANT)
)

ADMIN_TURNS = limited(
    select(
        *some(
            turn, "id", "thread", "number", "status", "failure_class", "process", "cancel_asked", "displaced", "tries"
        ),
        *some(turn, "accepted_at", "started_at", "ended_at", "last_event", "usage", "trace"),
    )
    .where(matches(turn, task="task"), turn.c.number > bindparam("after"))
    .order_by(turn.c.number),
    bindparam("limit"),
)

ADMIN_TURN_COUNT = select(func.count()).select_from(turn).where(matches(turn, task="task"))

_TURNS = json_values("turns", "shown")

ADMIN_MESSAGES = limited(
    select(*some(input_, "turn", "ordinal", "message_id", "received_at", "event"))
    .where(input_.c.turn.in_(_TURNS))
    .order_by(input_.c.received_at, input_.c.turn, input_.c.ordinal),
    bindparam("limit"),
)

ADMIN_CALLS = limited(
    select(
        *some(service_call, "id", "turn", "round", "attempt", "status", "error_class"),
        *some(service_call, "prepared_at", "first_at", "ended_at", "handle_in", "pending_handle", "handle_out", "run"),
        *some(service_call, "usage", "weight"),
    )
    .where(service_call.c.turn.in_(_TURNS))
    .order_by(service_call.c.turn, service_call.c.round, service_call.c.attempt),
    bindparam("limit"),
)

ADMIN_TOOLS = limited(
    select(
        *some(tool_call, "id", "service_call"),
        service_call.c.turn,
        *some(tool_call, "sequence", "external_id", "name", "executor", "server", "status", "approval_required"),
        *some(tool_call, "approval_decision", "approval_by", "approval_at", "approval_expires_at"),
        *some(tool_call, "asked_at", "started_at", "ended_at"),
    )
    .select_from(service_call.join(tool_call, tool_call.c.service_call == service_call.c.id))
    .where(service_call.c.turn.in_(_TURNS))
    .order_by(service_call.c.turn, service_call.c.round, service_call.c.attempt, tool_call.c.sequence),
    bindparam("limit"),
)

ADMIN_NOTES = limited(
    select(*some(turn_note, "turn", "at", "kind"), func.substr(turn_note.c.detail, ONE, literal_column("200")))
    .where(turn_note.c.turn.in_(_TURNS))
    .order_by(turn_note.c.turn, turn_note.c.at),
    bindparam("limit"),
)


# --- the items of turns: no index has the turn of an item ---

_THREAD_LENGTH = select(func.coalesce(func.max(history_item.c.position), ZERO) + ONE).where(
    matches(history_item, thread="thread")
)


def _first_item(number: str) -> Select[Any]:
    """The position from which on the items of service calls belong to turns with this number or later ones, by bisection: such
    items are in the order of turns, other than messages, which may have waited."""
    probe, of = history_item.alias(), turn.alias()
    narrowed = select(as_number(ZERO).label("low"), as_number(_THREAD_LENGTH.scalar_subquery()).label("high")).cte(
        recursive=True
    )
    middle = (narrowed.c.low + narrowed.c.high).op("/", precedence=8)(literal_column("2"))
    met = limited(
        select(of.c.number)
        .select_from(probe.join(of, of.c.id == probe.c.turn))
        .where(matches(probe, thread="thread"), probe.c.position >= middle, probe.c.input.is_(None))
        .order_by(probe.c.position)
    ).scalar_subquery()
    is_before = func.coalesce(met < bindparam(number), literal_column("1 = 0"))
    steps = narrowed.union_all(
        select(
            case((is_before, middle + ONE), else_=narrowed.c.low), case((is_before, narrowed.c.high), else_=middle)
        ).where(narrowed.c.low < narrowed.c.high)
    )
    return select(func.max(steps.c.low))


ADMIN_ITEMS = limited(
    select(
        *some(
            history_item, "thread", "position", "turn", "service_call", "kind", "replayable", "sent_in", "refused_in"
        ),
        history_item.c.weight,
    )
    .where(
        matches(history_item, thread="thread"),
        history_item.c.position >= _first_item("first").scalar_subquery(),
        history_item.c.position < _first_item("behind").scalar_subquery(),
        history_item.c.kind.in_([word("reasoning"), word("assistant"), word("opaque")]),
        history_item.c.turn.in_(_TURNS),
    )
    .order_by(history_item.c.position),
    bindparam("limit"),
)
"""What the service calls of turns from the number `first` on, and before the number `behind`, have brought."""


# --- long texts ---

_IN_CALL = service_call.join(turn, turn.c.id == service_call.c.turn)
_IN_TURN = thread.join(context, context.c.id == thread.c.context)


def _in_context(source: FromClause) -> FromClause:
    return source.join(thread, thread.c.id == turn.c.thread).join(context, context.c.id == thread.c.context)


def _texts(
    of: Column[Any], source: FromClause, id_: Column[str], number: Column[int] | ColumnElement[int] = ZERO
) -> Select[Any]:
    """Pieces of `size` characters from `start` on, which counts from 1, of the rows with these ids and numbers."""
    piece = func.substr(of, bindparam("start", type_=Integer), bindparam("size", type_=Integer))
    found = select(id_, number, piece, func.length(of)).select_from(source)
    wanted = [IN_TENANT, id_.in_(json_values("ids", "wanted")), of.is_not(None)]
    if number is not ZERO:
        wanted.append(number.in_(json_numbers("numbers", "wanted_numbers")))
    return found.where(*wanted)


ADMIN_TEXT_MESSAGE = _texts(
    input_.c.payload, _in_context(input_.join(turn, turn.c.id == input_.c.turn)), input_.c.turn, input_.c.ordinal
)
ADMIN_TEXT_SAID = _texts(turn.c.messages, _in_context(turn), turn.c.id)
ADMIN_TEXT_ARTIFACTS = _texts(turn.c.artifacts, _in_context(turn), turn.c.id)
ADMIN_TEXT_STATUS = _texts(task.c.status_message, _OF_TASK, task.c.id)
_TOOL = _in_context(
    tool_call.join(service_call, service_call.c.id == tool_call.c.service_call).join(
        turn, turn.c.id == service_call.c.turn
    )
)
ADMIN_TEXT_ARGUMENTS = _texts(tool_call.c.arguments, _TOOL, tool_call.c.id)
ADMIN_TEXT_OUTCOME = _texts(tool_call.c.outcome, _TOOL, tool_call.c.id)
ADMIN_TEXT_USAGE = _texts(service_call.c.usage, _in_context(_IN_CALL), service_call.c.id)
ADMIN_TEXT_ITEM = _texts(
    history_item.c.payload,
    history_item.join(thread, thread.c.id == history_item.c.thread).join(context, context.c.id == thread.c.context),
    history_item.c.thread,
    history_item.c.position,
)

ADMIN_EVENTS = limited(
    select(*some(event, "first", "last", "payload"))
    .where(event.c.task == bindparam("task"), event.c.last > bindparam("after"))
    .order_by(event.c.last),
    bindparam("limit"),
)
