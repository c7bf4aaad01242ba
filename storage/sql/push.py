"""The SQL of push notifications. Law: as in `statements`; whoever delivers names the `due_at` that it saw."""

from sqlalchemy import (
    ColumnElement,
    Select,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal_column,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite

from storage.schema.conditions import ENDED
from storage.sql.fragments import compiled, event, given, push_config, task, word
from storage.statement import Statement

_ONE: ColumnElement[int] = literal_column("1")
_NONE: ColumnElement[int] = literal_column("0")

_THIS = (push_config.c.task == bindparam("task"), push_config.c.id == bindparam("id"))
_TAKEN = (*_THIS, push_config.c.due_at == bindparam("due_at"))

# --- statements -------------------------------------------------------------------------------------------------------

_others = push_config.alias("others")
_CONFIG = ("task", "id", "version", "url", "host", "scheme", "sealed")
_LAST = select(func.coalesce(func.max(event.c.last), _NONE)).where(event.c.task == bindparam("task")).scalar_subquery()
_OTHERS = (
    select(func.count())
    .select_from(_others)
    .where(_others.c.task == bindparam("task"), _others.c.id != bindparam("id"))
    .scalar_subquery()
)
_ENDED = task.c.id.in_(select(task.c.id).where(task.c.id == bindparam("task"), text(ENDED)))

_put = sqlite.insert(push_config).from_select(
    [*_CONFIG, "state", "next_event", "attempts", "created_at"],
    select(
        *(bindparam(name) for name in _CONFIG),
        case((_ENDED, word("done")), else_=word("active")),
        _LAST + _ONE,
        _NONE,
        bindparam("now"),
    ).where(
        task.c.id == bindparam("task"),
        *(task.c[name] == bindparam(name) for name in ("tenant", "principal", "agent")),
        bindparam("most") > _OTHERS,
    ),
)

PUT_PUSH = Statement(
    "put a push configuration on a task of the caller that has room for it",
    compiled(
        _put.on_conflict_do_update(
            index_elements=["task", "id"],
            set_={
                **{name: _put.excluded[name] for name in _CONFIG[2:]},
                "state": word("active"),
                "due_at": _NONE,
                "attempts": _NONE,
                "last_error": null(),
            },
        )
    ),
)

DELETE_PUSH = Statement("drop a push configuration", compiled(delete(push_config).where(*_THIS)), rows=None)

CLAIM_PUSH = Statement(
    "take a delivery that is due", compiled(update(push_config).where(*_TAKEN).values(due_at=bindparam("until")))
)

ADVANCE_PUSH = Statement(
    "move a delivery on behind what was delivered",
    compiled(
        update(push_config)
        .where(*_TAKEN)
        .values(**given("next_event"), attempts=_NONE, last_error=null(), due_at=bindparam("until"))
    ),
)

_MORE = exists(
    select(_ONE).select_from(event).where(event.c.task == push_config.c.task, event.c.last >= bindparam("next_event"))
)
_OVER = exists(
    select(_ONE).select_from(task).where(task.c.id == push_config.c.task, text(ENDED.replace("state", "task.state", 1)))
)

COMPLETE_PUSH = Statement(
    "leave a delivery until there is more",
    compiled(
        update(push_config)
        .where(*_TAKEN)
        .values(
            due_at=case((_MORE, _NONE), else_=null()),
            state=case((_MORE, word("active")), (_OVER, word("done")), else_=word("active")),
        )
    ),
)

FAIL_PUSH = Statement(
    "note a delivery that failed",
    compiled(
        update(push_config)
        .where(*_TAKEN)
        .values(**given("state", "attempts"), due_at=bindparam("until"), last_error=bindparam("error"))
    ),
)

REPLAY_PUSH = Statement(
    "let a delivery go on that was stopped",
    compiled(
        update(push_config)
        .where(*_THIS, push_config.c.state.in_([word("stopped"), word("gone")]))
        .values(state=word("active"), due_at=_NONE, attempts=_NONE)
    ),
)

DELETE_PUSHES = Statement(
    "forget the push configurations of a task",
    compiled(delete(push_config).where(push_config.c.task == bindparam("task"))),
    rows=None,
)

# --- queries ----------------------------------------------------------------------------------------------------------

_COLUMNS = tuple(push_config.c[name] for name in _CONFIG)
"""In the order of PushConfig."""

PUSH_CONFIGS = compiled(
    select(*_COLUMNS)
    .where(push_config.c.task == bindparam("task"))
    .order_by(push_config.c.created_at, push_config.c.id)
)

DUE_PUSHES = compiled(
    select(*_COLUMNS, push_config.c.next_event, push_config.c.due_at, push_config.c.attempts, task.c.visible)
    .select_from(push_config.join(task, task.c.id == push_config.c.task))
    .where(
        push_config.c.due_at <= bindparam("now"),
        push_config.c.host.not_in(select(func.json_each(bindparam("but")).table_valued("value", name="busy").c.value)),
    )
    .order_by(push_config.c.due_at)
    .limit(bindparam("limit"))
    .offset(_NONE)
)

NEXT_PUSH = compiled(
    select(
        exists(select(_ONE).select_from(push_config).where(push_config.c.state == word("active"))),
        select(func.min(push_config.c.due_at)).where(push_config.c.due_at.is_not(None)).scalar_subquery(),
    )
)

PUSH_EVENTS = compiled(
    select(event.c.first, event.c.last, event.c.payload)
    .where(event.c.task == bindparam("task"), event.c.last >= bindparam("first"))
    .order_by(event.c.last)
    .limit(literal_column("16"))
    .offset(_NONE)
)

HIDDEN_TASK = compiled(
    select(_ONE).select_from(task).where(task.c.id == bindparam("task"), task.c.visible == _NONE, text(ENDED))
)


def _statuses() -> Select[tuple[object, ...]]:
    columns = ("state", "next_event", "due_at", "attempts", "last_error")
    return select(*_COLUMNS, task.c.agent, *(push_config.c[name] for name in columns))


PUSHES = compiled(
    _statuses()
    .select_from(push_config.join(task, task.c.id == push_config.c.task))
    .where(
        *(task.c[name] == bindparam(name) for name in ("tenant", "principal")),
        push_config.c.state.in_([word("active"), word("stopped"), word("gone")]),
    )
    .order_by(push_config.c.created_at.desc(), push_config.c.task, push_config.c.id)
    .limit(literal_column("1000"))
    .offset(_NONE)
)
