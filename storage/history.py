"""The queries of what was said in a thread, and what it weighs. Law: as in `queries`."""

from sqlalchemy import ColumnElement, and_, bindparam, case, func, literal_column, or_, select, text

from storage.conditions import UNSENT
from storage.sql import compiled, history_item, input_, service_call, tool_call, turn, word

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
