"""Every query of the ledger's reads, compiled once from the tables. Law: what grows is read through an index."""

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    column,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy import table as from_table

from gateway.failures import RESTARTED
from gateway.quarantine import TRIES
from storage.sql import (
    compiled,
    context,
    event,
    history_item,
    input_,
    lapsed,
    process,
    secret,
    service_call,
    task,
    thread,
    tool_call,
    tool_call_columns,
    turn,
    word,
)
from storage.statement import Listing
from storage.tables import LIVE, UNFINISHED, UNSENT, WAITING

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

_TASK = (
    task.c.id,
    task.c.context,
    context.c.public_id,
    task.c.agent,
    task.c.state,
    task.c.status_message,
    task.c.status_at,
    task.c.last_event,
    task.c.visible,
)
"""In the order of TaskRecord."""

_LIVING = context.c.state.in_([word("open"), word("closed")])
"""What is left of other contexts is about to be purged."""

_BELONGS = and_(task.c.tenant == bindparam("tenant"), task.c.principal == bindparam("principal"))

_OF_AGENT = task.c.agent == bindparam("agent")

_CONTEXT_BELONGS = and_(context.c.tenant == bindparam("tenant"), context.c.principal == bindparam("principal"))

_TASK_IN_CONTEXT = task.join(context, context.c.id == task.c.context)

_WAITS = (
    select(turn.c.task)
    .where(turn.c.thread == thread.c.id, turn.c.ended_at.is_(None), turn.c.status == word("waiting"))
    .scalar_subquery()
)

_ASIDE = turn.c.tries >= literal_column(str(TRIES))

_STUCK = (
    select(turn.c.task)
    .where(turn.c.thread == thread.c.id, turn.c.ended_at.is_(None), _ASIDE)
    .limit(literal_column("1"))
    .offset(literal_column("0"))
    .scalar_subquery()
)

CONTEXT = compiled(
    select(context.c.id, context.c.public_id, context.c.state, _WAITS, _STUCK, *_THREAD)
    .select_from(
        context.outerjoin(
            thread,
            and_(thread.c.context == context.c.id, thread.c.agent == bindparam("agent"), text(f"thread.{LIVE}")),
        )
    )
    .where(_CONTEXT_BELONGS, context.c.public_id == bindparam("public_id"))
)

THREAD = compiled(select(*_THREAD).where(thread.c.id == bindparam("thread")))

TASK = compiled(
    select(*_TASK).select_from(_TASK_IN_CONTEXT).where(task.c.id == bindparam("task"), _BELONGS, _OF_AGENT, _LIVING)
)

WAITING_TASKS = compiled(
    select(*_TASK)
    .select_from(_TASK_IN_CONTEXT)
    .where(task.c.context == bindparam("context"), text(f"visible = 1 AND task.{WAITING}"))
)

REPLAY = compiled(
    select(turn.c.task, input_.c.digest)
    .select_from(input_.join(turn, turn.c.id == input_.c.turn))
    .where(
        input_.c.tenant == bindparam("tenant"),
        input_.c.principal == bindparam("principal"),
        input_.c.agent == bindparam("agent"),
        input_.c.key_kind == bindparam("key_kind"),
        input_.c.key == bindparam("key"),
    )
)


_TURN = (input_.c.ordinal, input_.c.payload, input_.c.event, turn.c.ended_at, _ASIDE, turn.c.messages)

_IN_ORDER = input_.c.event
"""Of the turns of one task: each is accepted when the one before it has ended, and its end was an event."""


def turns(*, artifacts: bool) -> str:
    """Of one task, `task_0`; who wants several puts their parameters beside it: JSON would cut an id at a NUL."""
    asked: list[ColumnElement[str]] = [bindparam("task_0")]
    return compiled(
        select(turn.c.task, *_TURN, turn.c.artifacts if artifacts else literal_column("NULL"))
        .select_from(turn.join(input_, input_.c.turn == turn.c.id))
        .where(turn.c.task.in_(asked))
        .order_by(turn.c.task, _IN_ORDER, input_.c.ordinal)
    )


WHOLE_TASK = compiled(
    select(*_TASK, *_TURN, turn.c.artifacts)
    .select_from(_TASK_IN_CONTEXT.join(turn, turn.c.task == task.c.id).join(input_, input_.c.turn == turn.c.id))
    .where(task.c.id == bindparam("task"), _BELONGS, _OF_AGENT, _LIVING)
    .order_by(_IN_ORDER, input_.c.ordinal)
)

_FIRST_TURN = (
    select(turn.c.id)
    .select_from(turn.join(thread, thread.c.id == turn.c.thread))
    .where(turn.c.task == bindparam("task"))
    .order_by(thread.c.epoch, turn.c.number)
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)

FIRST_MESSAGE = compiled(
    select(input_.c.payload).where(
        input_.c.turn == _FIRST_TURN.scalar_subquery(), input_.c.ordinal == literal_column("0")
    )
)

EVENTS = compiled(
    select(event.c.first, event.c.last, event.c.payload)
    .where(event.c.task == bindparam("task"), event.c.last > bindparam("after"))
    .order_by(event.c.last)
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
    )
    .select_from(
        history_item.join(turn, turn.c.id == history_item.c.turn)
        .outerjoin(input_, and_(input_.c.turn == history_item.c.turn, input_.c.ordinal == history_item.c.input))
        .outerjoin(tool_call, tool_call.c.id == history_item.c.tool_call)
    )
    .where(history_item.c.thread == bindparam("thread"))
    .order_by(turn.c.number, history_item.c.position)
)

HISTORY = compiled(_ITEMS)

UNSENT_ITEMS = compiled(_ITEMS.where(text(UNSENT), history_item.c.kind.in_([word("user"), word("output")])))

_OLDER = history_item.alias("older")
_OF = turn.alias("of")
_TURN_NOW = select(turn.c.number).where(turn.c.id == bindparam("turn")).scalar_subquery()

_END = (
    select(
        (func.coalesce(func.max(history_item.c.position), literal_column("0")) + literal_column("1")).label("position"),
        literal_column("0").label("messages"),
        literal_column("0").label("weight"),
        _TURN_NOW.label("oldest"),
        literal_column("0").label("whole"),
    )
    .where(history_item.c.thread == bindparam("thread"))
    .cte("tail", recursive=True)
)


def _if(condition: ColumnElement[bool], value: ColumnElement[int]) -> ColumnElement[int]:
    return case((condition, value), else_=literal_column("0"))


_COUNTS = and_(
    _OLDER.c.replayable == literal_column("1"),
    _OLDER.c.weight > literal_column("0"),
    _OF.c.number <= _TURN_NOW,
    or_(bindparam("opaque") == literal_column("1"), _OLDER.c.kind.not_in([word("reasoning"), word("opaque")])),
)

# One step back from the end: positions have no gaps. Whole are the turns at a message of the oldest turn met so far:
# what a turn said comes behind its message, and behind what the turns before it said.
_BACK = (
    select(
        _OLDER.c.position,
        _END.c.messages + _if(and_(_COUNTS, _OLDER.c.kind.in_([word("user"), word("assistant")])), literal_column("1")),
        _END.c.weight + _if(_COUNTS, _OLDER.c.weight),
        func.min(_END.c.oldest, _OF.c.number),
        _if(and_(_OLDER.c.input == literal_column("0"), _OF.c.number <= _END.c.oldest), literal_column("1")),
    )
    .select_from(
        _END.join(
            _OLDER,
            and_(_OLDER.c.thread == bindparam("thread"), _OLDER.c.position == _END.c.position - literal_column("1")),
        ).join(_OF, _OF.c.id == _OLDER.c.turn)
    )
    .where(
        or_(
            _END.c.whole == literal_column("0"),
            and_(_END.c.messages < bindparam("messages"), _END.c.weight < bindparam("weight")),
        )
    )
)

_TAIL = _END.union_all(_BACK)

RECENT_HISTORY = compiled(_ITEMS.where(history_item.c.position >= select(func.min(_TAIL.c.position)).scalar_subquery()))

MEASURED = compiled(
    select(service_call.c.weight, service_call.c.usage)
    .select_from(turn.join(service_call, service_call.c.turn == turn.c.id))
    .where(turn.c.thread == bindparam("thread"), service_call.c.status == word("completed"))
    .order_by(turn.c.number.desc(), service_call.c.round.desc())
    .limit(literal_column("8"))
    .offset(literal_column("0"))
)

_FREE = or_(thread.c.lease_holder.is_(None), lapsed(thread.c.lease_until))

_ALIVE = exists(
    select(literal_column("1"))
    .select_from(process)
    .where(process.c.id == turn.c.process, ~lapsed(process.c.alive_until))
)

_LEFT = or_(
    turn.c.process == bindparam("process"),
    and_(turn.c.status == word("running"), or_(_FREE, thread.c.lease_holder != turn.c.process)),
    and_(turn.c.status == word("accepted"), ~_ALIVE),
)
"""One that runs belongs to who holds the lease, one that waits to the process that has accepted it."""

# Not ordered: for that the planner would walk all turns by number, and not the index of the few that have not ended.
UNFINISHED_TURNS = compiled(
    select(
        turn.c.number,
        turn.c.id,
        turn.c.thread,
        thread.c.generation,
        and_(turn.c.status == word("running"), _FREE).label("expired"),
        (turn.c.status == word("accepted")).label("waits"),
        turn.c.process,
        turn.c.cancel_asked,
        turn.c.tries,
        task.c.tenant,
        task.c.principal,
        *_TASK,
    )
    .select_from(
        turn.join(thread, thread.c.id == turn.c.thread)
        .join(task, task.c.id == turn.c.task)
        .join(context, context.c.id == task.c.context)
    )
    .where(text(UNFINISHED), _LEFT)
)

OPEN_TURNS = compiled(
    select(turn.c.id, turn.c.task, turn.c.thread, turn.c.status == word("waiting"))
    .select_from(turn.join(thread, thread.c.id == turn.c.thread))
    .where(turn.c.ended_at.is_(None), thread.c.context == bindparam("context"))
)

OPEN_TOOL_CALLS = compiled(
    select(
        *tool_call_columns,
    )
    .select_from(service_call.join(tool_call, tool_call.c.service_call == service_call.c.id))
    .where(service_call.c.turn == bindparam("turn"), tool_call.c.outcome.is_(None))
    .order_by(service_call.c.round, tool_call.c.sequence)
)

EARLIER_TOOL_CALL = compiled(
    select(tool_call.c.name, tool_call.c.arguments, tool_call.c.status, tool_call.c.outcome)
    .select_from(
        turn.join(service_call, service_call.c.turn == turn.c.id).join(
            tool_call, tool_call.c.service_call == service_call.c.id
        )
    )
    .where(
        turn.c.thread == bindparam("thread"),
        tool_call.c.external_id == bindparam("external_id"),
        tool_call.c.id != bindparam("than"),
        tool_call.c.outcome.is_not(None),
    )
    .order_by(turn.c.number.desc(), service_call.c.round.desc(), tool_call.c.sequence.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)


_FIRST_CALL = service_call.alias("first_call")

_AGAIN = service_call.alias("again")

LATEST_CALL = compiled(
    select(
        service_call.c.id,
        service_call.c.round,
        service_call.c.attempt,
        service_call.c.status,
        service_call.c.pending_handle,
        _FIRST_CALL.c.handle_in,
        select(func.count())
        .select_from(_AGAIN)
        .where(_AGAIN.c.turn == bindparam("turn"), _AGAIN.c.error_class == word(RESTARTED))
        .scalar_subquery(),
        exists(
            select(literal_column("1")).where(
                tool_call.c.service_call == service_call.c.id, tool_call.c.executor != word("backend")
            )
        ),
    )
    .select_from(
        service_call.join(
            _FIRST_CALL,
            and_(
                _FIRST_CALL.c.turn == service_call.c.turn,
                _FIRST_CALL.c.round == literal_column("0"),
                _FIRST_CALL.c.attempt == literal_column("0"),
            ),
        )
    )
    .where(service_call.c.turn == bindparam("turn"))
    .order_by(service_call.c.round.desc(), service_call.c.attempt.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)

PREFERENCES = compiled(
    select(input_.c.preferences).where(input_.c.turn == bindparam("turn"), input_.c.ordinal == literal_column("0"))
)

PROCESS_OF = compiled(select(turn.c.process).where(turn.c.id == bindparam("turn"), turn.c.ended_at.is_(None)))

UNHEARD_CALL = compiled(
    select(
        service_call.c.id,
        service_call.c.turn,
        service_call.c.round,
        service_call.c.handle_in,
        service_call.c.pending_handle,
    )
    .select_from(turn.join(service_call, service_call.c.turn == turn.c.id))
    .where(turn.c.thread == bindparam("thread"), service_call.c.status == word("unknown"))
    .order_by(turn.c.number.desc(), service_call.c.round.desc(), service_call.c.attempt.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)

# A call that begins a chain is the first of its thread, or of an epoch that the turn itself began.
TURN_BASE = compiled(
    select(service_call.c.handle_in)
    .where(service_call.c.turn == bindparam("turn"))
    .order_by(service_call.c.handle_in.is_not(None), service_call.c.round, service_call.c.attempt)
)

CANCELS_ASKED = compiled(
    select(turn.c.task).where(
        turn.c.ended_at.is_(None), turn.c.cancel_asked == literal_column("1"), turn.c.process == bindparam("process")
    )
)

LATEST_EVENTS = compiled(
    select(
        task.c.id,
        select(func.coalesce(func.max(event.c.last), literal_column("0")))
        .where(event.c.task == task.c.id)
        .scalar_subquery(),
    ).where(task.c.id.in_(select(func.json_each(bindparam("tasks")).table_valued("value", name="asked").c.value)))
)

DATA_VERSION = "PRAGMA data_version"
"""Another number whenever another connection has committed; only to be compared on one and the same connection."""

SECRET = compiled(select(secret.c.value).where(secret.c.name == bindparam("name")))

SCHEMA_VERSION = compiled(select(column("version_num")).select_from(from_table("alembic_version")))


def listing(*, in_context: bool, in_state: bool, since: bool, after: bool) -> Listing:
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

    page = matching(select(*_TASK).select_from(_TASK_IN_CONTEXT).where(_LIVING))
    page = page.order_by(task.c.status_at.desc(), task.c.id.desc())
    page = page.limit(bindparam("limit")).offset(literal_column("0"))
    if after:
        behind = tuple_(bindparam("after_at"), bindparam("after_id"))
        page = page.where(tuple_(task.c.status_at, task.c.id) < behind)
    counted = select(func.count()).select_from(_TASK_IN_CONTEXT if in_context else task)
    return Listing(compiled(page), compiled(matching(counted)))
