"""The queries of contexts and threads for operators. Law: as in `sql/tasks.py`; what no index finds is looked for among a
number of the latest turns, whose ids begin with the time, so that the work does not grow with the ledger.
"""

from typing import Any

from sqlalchemy import Column, Select, Table, and_, bindparam, case, func, literal_column, or_, select, text, tuple_
from sqlalchemy.sql.expression import ColumnElement, FromClause, Subquery

from storage.schema.conditions import TASK_WAITING, THREAD_BROKEN, task_waiting, thread_live
from storage.schema.tables import (
    context,
    delete_job,
    input_,
    service_call,
    task,
    thread,
    tool_call,
    turn,
    withdrawal,
)
from storage.sql.fragments import (
    ONE,
    ZERO,
    json_values,
    limited,
    matches,
    place_in,
    short,
    some,
    there_is,
    unindexed,
    word,
)

_EMPTY = word("")

IN_TENANT = unindexed(context.c.tenant) == bindparam("tenant")


def recent(table: Table = turn) -> Subquery:
    """The ids of the `chunk` latest rows before the id `before`."""
    ids = select(table.c.id).where(table.c.id < bindparam("before")).order_by(table.c.id.desc())
    return limited(ids, bindparam("chunk")).subquery("recent")


def _edge(table: Table, at: Column[int]) -> Select[Any]:
    """The id and the time of the last of the rows that `recent` has, where it has as many as were asked for."""
    found = select(table.c.id, at).where(table.c.id < bindparam("before")).order_by(table.c.id.desc())
    return found.limit(ONE).offset(bindparam("chunk") - ONE)


ADMIN_TURN_EDGE = _edge(turn, turn.c.accepted_at)
ADMIN_CONTEXT_EDGE = _edge(context, context.c.created_at)


# --- lists of contexts ---


def last_number(of: ColumnElement[str]) -> ColumnElement[int]:
    """The number of the latest turn of a thread."""
    last = turn.alias("last")
    return select(func.max(last.c.number)).where(last.c.thread == of).correlate_except(last).scalar_subquery()


_CORRELATION = '"correlationId":"'

CORRELATION_ID = case(
    (
        and_(turn.c.status == word("failed"), place_in(task.c.status_message, word(_CORRELATION)) > ZERO),
        func.substr(
            task.c.status_message,
            place_in(task.c.status_message, word(_CORRELATION)) + literal_column(str(len(_CORRELATION))),
            literal_column("33"),
        ),
    ),
    else_=None,
)
"""Of a turn that failed and its task, which ends with it: the text from the correlation id of its message on. In the texts of
that message the mark cannot stand, as their quotes are escaped."""


_beside, _later = thread.alias("beside"), turn.alias("later")
_of_context, _open = thread.alias("of_context"), turn.alias("open_turn")


def _turns_beside(turns: FromClause, threads: FromClause) -> FromClause:
    return threads.join(turns, turns.c.thread == threads.c.id)


def _is_latest(turns: FromClause, threads: FromClause) -> ColumnElement[bool]:
    """No other turn of the context was accepted later."""
    return and_(
        turns.c.number == last_number(turns.c.thread),
        ~there_is(
            _turns_beside(_later, _beside),
            _beside.c.context == threads.c.context,
            _beside.c.id != threads.c.id,
            _later.c.number == last_number(_beside.c.id),
            _later.c.id > turns.c.id,
        ),
    )


_IS_LATEST_OPEN = ~there_is(
    _turns_beside(_later, _beside),
    _beside.c.context == context.c.id,
    _later.c.ended_at.is_(None),
    _later.c.id > turn.c.id,
)


def _has_open() -> ColumnElement[bool]:
    turns = _turns_beside(_open, _of_context)
    return there_is(turns, _of_context.c.context == context.c.id, _open.c.ended_at.is_(None))


def _has_thread(*more: ColumnElement[bool]) -> ColumnElement[bool]:
    return there_is(_of_context, _of_context.c.context == context.c.id, *more)


_ENDED = context.c.state.in_([word("expired"), word("deleted")])

_latest, _asked = turn.alias("latest_turn"), task.alias("asked")

_HAS_FAILED = there_is(
    _turns_beside(_latest, _of_context),
    _of_context.c.context == context.c.id,
    _latest.c.status == word("failed"),
    _is_latest(_latest, _of_context),
)
"""The latest turn of the context has failed."""

_HAS_QUESTION = there_is(
    _asked,
    _asked.c.context == context.c.id,
    text(task_waiting("asked.")),
    ~there_is(_later, _later.c.task == _asked.c.id, _later.c.ended_at.is_(None), _later.c.status != word("waiting")),
)
"""A task of the context waits for its caller, who has not answered yet."""

_STANDING = case(
    (_ENDED, word("ended")),
    (_has_thread(_of_context.c.state == word("lost")), word("lost")),
    (_has_thread(_of_context.c.state == word("unsynced")), word("unsynced")),
    (_HAS_FAILED, word("failed")),
    (_HAS_QUESTION, word("waiting")),
    (_has_open(), word("working")),
    else_=word("idle"),
)
"""The worst that is to be said of the context."""


def _if_given(parameter: str, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """The empty text asks for nothing."""
    return or_(bindparam(parameter) == _EMPTY, condition)


def _matching(at: Column[int]) -> tuple[ColumnElement[bool], ...]:
    """The conditions of a `ContextFilter`, without that on the text; the context is listed at this time."""
    return (
        IN_TENANT,
        _if_given("principal", unindexed(context.c.principal) == bindparam("principal")),
        _if_given("agent", _has_thread(_of_context.c.agent == bindparam("agent"))),
        at >= bindparam("since"),
        at <= bindparam("until"),
        or_(and_(bindparam("standing") == _EMPTY, ~_ENDED), bindparam("standing") == _STANDING),
    )


_CONTEXT = (*some(context, "id", "public_id", "principal", "state", "created_at", "last_used_at"), _STANDING)
_TURN = (
    *some(turn, "id", "task"),
    thread.c.agent,
    *some(turn, "number", "status", "failure_class", "accepted_at"),
)


def first_words(length: int) -> ColumnElement[str]:
    """The beginning of the JSON of the message that opened a turn."""
    return func.substr(input_.c.payload, ONE, literal_column(str(length)))


def _listed(turns: FromClause, *conditions: ColumnElement[bool]) -> Select[Any]:
    """The contexts of these turns, each with its turn."""
    opened = and_(input_.c.turn == turn.c.id, input_.c.ordinal == ZERO)
    found = turns.join(context, context.c.id == thread.c.context).outerjoin(input_, opened)
    listed = select(*_CONTEXT, *_TURN, first_words(2000)).select_from(found)
    return limited(
        listed.where(*_matching(turn.c.accepted_at), *conditions).order_by(turn.c.id.desc()), bindparam("limit")
    )


_recent = recent()
_RECENT_TURNS = _recent.join(turn, turn.c.id == _recent.c.id).join(thread, thread.c.id == turn.c.thread)

ADMIN_CONTEXTS = _listed(_RECENT_TURNS, _is_latest(turn, thread))
"""Of the latest turns before `before`."""

_open_turns = limited(select(turn.c.id).where(turn.c.ended_at.is_(None)), bindparam("chunk")).subquery("open_turns")

ADMIN_CONTEXTS_OPEN = _listed(
    _open_turns.join(turn, turn.c.id == _open_turns.c.id).join(thread, thread.c.id == turn.c.thread),
    _IS_LATEST_OPEN,
    turn.c.id < bindparam("before"),
)
"""Of the turns that have not ended: not more than `chunk` of them."""

_asking = limited(
    select(task.c.context).distinct().where(text(TASK_WAITING)).order_by(task.c.context.desc()), bindparam("chunk")
).subquery("asking")

ADMIN_CONTEXTS_WAITING = _listed(
    _asking.join(thread, thread.c.context == unindexed(_asking.c.context)).join(turn, turn.c.thread == thread.c.id),
    turn.c.number == last_number(thread.c.id),
    _is_latest(turn, thread),
    turn.c.id < bindparam("before"),
)
"""Of the latest contexts with tasks that wait: not more than `chunk` of them."""

_broken = limited(select(thread.c.id).where(text(THREAD_BROKEN)), bindparam("chunk")).subquery("broken")

ADMIN_CONTEXTS_BROKEN = _listed(
    _broken.join(thread, thread.c.id == _broken.c.id).join(turn, turn.c.thread == thread.c.id),
    turn.c.number == last_number(thread.c.id),
    turn.c.id < bindparam("before"),
)
"""Of the threads that are lost or unsynced: not more than `chunk` of them. A context comes once for each."""

_bare = recent(context)

ADMIN_CONTEXTS_BARE = limited(
    select(*_CONTEXT)
    .select_from(_bare.join(context, context.c.id == _bare.c.id))
    .where(
        *_matching(context.c.created_at), ~there_is(_turns_beside(_later, _beside), _beside.c.context == context.c.id)
    )
    .order_by(context.c.id.desc()),
    bindparam("limit"),
)
"""Of the latest contexts before `before`, those without a turn."""

ADMIN_LISTED_THREADS = (
    select(
        *some(thread, "context", "id", "agent", "storage_owner", "epoch", "state"),
        func.coalesce(last_number(thread.c.id), ZERO),
    )
    .where(thread.c.context.in_(json_values("contexts", "listed")), text(thread_live("thread.")))
    .order_by(thread.c.context, thread.c.agent)
)


# --- contexts by what was said in them ---

_AROUND: ColumnElement[int] = literal_column("400")
_EXCERPT: ColumnElement[int] = literal_column("1200")
"""Characters in front of a text that was found, and of all that is read around it."""


def _place(said: Column[str | None] | Column[str]) -> ColumnElement[int]:
    return func.coalesce(place_in(func.lower(said), bindparam("text")), ZERO)


def _excerpt(said: Column[str | None] | Column[str]) -> ColumnElement[str]:
    place = _place(said)
    return func.substr(said, case((place > _AROUND, place - _AROUND), else_=ONE), _EXCERPT)


_SAID = (input_.c.payload, turn.c.messages, turn.c.artifacts)

ADMIN_CONTEXTS_SAYING = limited(
    select(*_CONTEXT, *_TURN, case(*((_place(said) > ZERO, _excerpt(said)) for said in _SAID)))
    .select_from(
        _RECENT_TURNS.join(context, context.c.id == thread.c.context).outerjoin(input_, input_.c.turn == turn.c.id)
    )
    .where(*_matching(turn.c.accepted_at), or_(*(_place(said) > ZERO for said in _SAID)))
    .order_by(turn.c.id.desc(), input_.c.ordinal),
    bindparam("limit"),
)
"""Of the latest turns before `before`, those in which `text` was said: a part of JSON, in lower case. A turn comes once for
each of its messages."""


# --- a context and its threads ---

ADMIN_CONTEXT = select(
    *some(context, "id", "public_id", "tenant", "principal", "state", "created_at", "last_used_at")
).where(context.c.id == bindparam("context"), IN_TENANT)

_next = thread.alias("next")

_ARCHIVED = there_is(
    _next, _next.c.context == thread.c.context, _next.c.agent == thread.c.agent, _next.c.epoch > thread.c.epoch
)

_WITHDRAWALS = select(func.count()).select_from(withdrawal).where(withdrawal.c.thread == thread.c.id).scalar_subquery()

_MAP = (
    *some(thread, "id", "agent", "epoch"),
    _ARCHIVED.label("archived"),
    *some(thread, "storage_owner", "handle_kind", "handle", "clean_handle", "generation", "state"),
    func.coalesce(last_number(thread.c.id), ZERO),
    *some(thread, "began_at", "began_by", "lease_holder", "lease_until"),
    _WITHDRAWALS,
)
"""The columns of ThreadMap, in its order."""

ADMIN_THREADS = limited(
    select(*_MAP).where(matches(thread, context="context")).order_by(_ARCHIVED, thread.c.epoch.desc(), thread.c.agent),
    bindparam("limit"),
)

ADMIN_APPROVALS = limited(
    select(*some(tool_call, "id", "name", "server", "approval_by", "approval_at"))
    .where(tool_call.c.standing == bindparam("context"))
    .order_by(tool_call.c.id),
    bindparam("limit"),
)

_named = thread.alias("named")

ADMIN_EPOCHS = limited(
    select(*_MAP)
    .select_from(
        _named.join(thread, and_(thread.c.context == _named.c.context, thread.c.agent == _named.c.agent)).join(
            context, context.c.id == thread.c.context
        )
    )
    .where(_named.c.id == bindparam("thread"), IN_TENANT)
    .order_by(thread.c.epoch.desc()),
    bindparam("limit"),
)
"""The epochs of the thread that `thread` is, or is the archive of, the live one first."""

ADMIN_CONTINUATION = (
    select(*some(context, "public_id", "principal", "tenant"), thread.c.id, turn.c.id)
    .select_from(
        context.join(thread, thread.c.context == context.c.id).outerjoin(
            turn, and_(turn.c.thread == thread.c.id, turn.c.number == last_number(thread.c.id))
        )
    )
    .where(
        context.c.id == bindparam("context"),
        IN_TENANT,
        thread.c.agent == bindparam("agent"),
        text(thread_live("thread.")),
    )
)

ADMIN_THREAD_TURNS = limited(
    select(
        *some(turn, "id", "number", "task"),
        *some(task, "state", "visible"),
        *some(turn, "status", "failure_class", "displaced", "tries", "accepted_at", "started_at", "ended_at"),
        CORRELATION_ID,
        first_words(800),
    )
    .select_from(
        turn.join(task, task.c.id == turn.c.task).outerjoin(
            input_, and_(input_.c.turn == turn.c.id, input_.c.ordinal == ZERO)
        )
    )
    .where(matches(turn, thread="thread"), turn.c.number < bindparam("before"))
    .order_by(turn.c.number.desc()),
    bindparam("limit"),
)


# --- the handles of a thread ---

_stepped = turn.alias("stepped")

ADMIN_STEP_EDGE = (
    select(turn.c.number)
    .where(matches(turn, thread="thread"), turn.c.number <= bindparam("number"))
    .order_by(turn.c.number.desc())
    .limit(ONE)
    .offset(bindparam("limit") - ONE)
)
"""The number of the last of the `limit` latest turns up to `number`, where there are as many."""

_step_turns = limited(
    select(_stepped.c.id)
    .where(matches(_stepped, thread="thread"), _stepped.c.number <= bindparam("number"))
    .order_by(_stepped.c.number.desc()),
    bindparam("limit"),
).subquery("step_turns")

_of_before, _of_after = delete_job.alias("of_before"), delete_job.alias("of_after")


def _job(handle: ColumnElement[str]) -> ColumnElement[str]:
    """The id of the job that deletes a handle of the thread."""
    return turn.c.thread.concat(word(" ")).concat(short(handle))


ADMIN_STEPS = limited(
    select(
        service_call.c.id,
        *some(turn, "id", "task", "number"),
        *some(service_call, "round", "attempt", "status", "error_class"),
        *some(service_call, "prepared_at", "ended_at", "handle_in", "pending_handle", "handle_out", "run"),
        *some(turn, "status", "failure_class", "ended_at", "displaced"),
        *(column for job in (_of_before, _of_after) for column in (job.c.id, job.c.due_at, job.c.attempts)),
    )
    .select_from(
        _step_turns.join(turn, turn.c.id == _step_turns.c.id)
        .join(service_call, service_call.c.turn == turn.c.id)
        .outerjoin(_of_before, _of_before.c.id == _job(service_call.c.handle_in))
        .outerjoin(
            _of_after, _of_after.c.id == _job(func.coalesce(service_call.c.handle_out, service_call.c.pending_handle))
        )
    )
    .where(
        tuple_(turn.c.number, service_call.c.round, service_call.c.attempt)
        <= tuple_(bindparam("number"), bindparam("round"), bindparam("attempt"))
    )
    .order_by(turn.c.number.desc(), service_call.c.round.desc(), service_call.c.attempt.desc()),
    bindparam("limit"),
)
"""The latest service calls of a thread up to a key, of at most `limit` turns."""
