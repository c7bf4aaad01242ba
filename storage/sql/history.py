"""The queries of the history of a thread, and its weight. Law: as in `sql/tasks.py`."""

from sqlalchemy import and_, bindparam, case, func, literal_column, or_, select, text
from sqlalchemy.sql.expression import ColumnElement

from storage.schema.conditions import ITEM_UNSENT, one_of
from storage.schema.tables import history_item, input_, service_call, tool_call, turn
from storage.sql.fragments import ONE, ZERO, as_number, is_displaced, lesser, limited, some, word

_ITEMS = (
    select(
        history_item.c.position,
        turn.c.number,
        turn.c.id,
        history_item.c.payload,
        input_.c.payload,
        *some(history_item, "provider_id", "sent_in", "replayable"),
        (turn.c.status == word("failed")).label("failed"),
        history_item.c.service_call,
        tool_call.c.sequence,
        is_displaced.label("displaced"),
        history_item.c.refused_in,
    )
    .select_from(
        history_item.join(turn, turn.c.id == history_item.c.turn)
        .outerjoin(input_, and_(input_.c.turn == history_item.c.turn, input_.c.ordinal == history_item.c.input))
        .outerjoin(tool_call, tool_call.c.id == history_item.c.tool_call)
    )
    .where(history_item.c.thread == bindparam("thread"))
    .order_by(turn.c.number, history_item.c.position)
)

HISTORY = _ITEMS

UNSENT_ITEMS = _ITEMS.where(text(ITEM_UNSENT), text(one_of("history_item.kind", "user", "output", "assistant")))

_OLDER = history_item.alias("older")

_OF = turn.alias("of")

_TURN_NOW = select(turn.c.number).where(turn.c.id == bindparam("turn")).scalar_subquery()

_END = (
    select(
        (func.coalesce(func.max(history_item.c.position), ZERO) + ONE).label("position"),
        as_number(ZERO).label("messages"),
        as_number(ZERO).label("weight"),
        _TURN_NOW.label("oldest"),
        ZERO.label("whole"),
    )
    .where(history_item.c.thread == bindparam("thread"))
    .cte("tail", recursive=True)
)


def _if(condition: ColumnElement[bool], value: ColumnElement[int]) -> ColumnElement[int]:
    return case((condition, value), else_=ZERO)


_COUNTS = and_(
    _OLDER.c.replayable == ONE,
    _OLDER.c.weight > ZERO,
    _OF.c.number <= _TURN_NOW,
    or_(_OF.c.displaced == ZERO, _OF.c.ended_at.is_(None)),
    or_(bindparam("opaque") == ONE, _OLDER.c.kind.not_in([word("reasoning"), word("opaque")])),
)

# One step back from the end: positions have no gaps. At a message of the oldest turn met so far all turns are whole: the
# items of a turn follow its message, and the items of the turns before it.
_BACK = (
    select(
        _OLDER.c.position,
        _END.c.messages + _if(and_(_COUNTS, _OLDER.c.kind.in_([word("user"), word("assistant")])), ONE),
        _END.c.weight + _if(_COUNTS, _OLDER.c.weight),
        lesser(_END.c.oldest, _OF.c.number),
        _if(and_(_OLDER.c.input == ZERO, _OF.c.number <= _END.c.oldest), ONE),
    )
    .select_from(
        _END.join(
            _OLDER, and_(_OLDER.c.thread == bindparam("thread"), _OLDER.c.position == _END.c.position - ONE)
        ).join(_OF, _OF.c.id == _OLDER.c.turn)
    )
    .where(
        or_(_END.c.whole == ZERO, and_(_END.c.messages < bindparam("messages"), _END.c.weight < bindparam("weight")))
    )
)

_TAIL = _END.union_all(_BACK)

RECENT_HISTORY = _ITEMS.where(history_item.c.position >= select(func.min(_TAIL.c.position)).scalar_subquery())

MEASURED_CALLS = limited(
    select(service_call.c.weight, service_call.c.usage)
    .select_from(turn.join(service_call, service_call.c.turn == turn.c.id))
    .where(turn.c.thread == bindparam("thread"), service_call.c.status == word("completed"))
    .order_by(turn.c.number.desc(), service_call.c.round.desc()),
    literal_column("8"),
)
