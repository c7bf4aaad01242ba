"""The statements and queries of push notifications. Law: as in `sql/turns.py`; a delivery names the `due_at` that it saw."""

from sqlalchemy import bindparam, case, delete, func, literal_column, null, select, text, update

from storage.schema.conditions import TASK_ENDED, task_ended
from storage.schema.tables import event, push_config, task
from storage.sql.fragments import ONE, ZERO, Write, given, json_values, limited, matches, some, there_is, upsert, word

_THIS = matches(push_config, task="task", id="id")
_TAKEN = matches(push_config, task="task", id="id", due_at="due_at")

# --- statements -------------------------------------------------------------------------------------------------------

_others = push_config.alias("others")
_CONFIG = ("task", "id", "version", "url", "host", "scheme", "sealed")
_LAST = select(func.coalesce(func.max(event.c.last), ZERO)).where(event.c.task == bindparam("task")).scalar_subquery()
_OTHERS = (
    select(func.count())
    .select_from(_others)
    .where(_others.c.task == bindparam("task"), _others.c.id != bindparam("id"))
    .scalar_subquery()
)
_ENDED = task.c.id.in_(select(task.c.id).where(task.c.id == bindparam("task"), text(TASK_ENDED)))

_put = upsert(push_config).from_select(
    [*_CONFIG, "state", "next_event", "attempts", "created_at"],
    select(
        *(bindparam(name, type_=push_config.c[name].type) for name in _CONFIG),
        case((_ENDED, word("done")), else_=word("active")),
        _LAST + ONE,
        ZERO,
        bindparam("now"),
    ).where(
        task.c.id == bindparam("task"),
        matches(task, tenant="tenant", principal="principal", agent="agent"),
        bindparam("most") > _OTHERS,
    ),
)

PUT_PUSH = Write(
    "put a push configuration on a task of the caller with fewer than the maximum",
    _put.on_conflict_do_update(
        index_elements=["task", "id"],
        set_={
            **{name: _put.excluded[name] for name in _CONFIG[2:]},
            "state": word("active"),
            "due_at": ZERO,
            "attempts": ZERO,
            "last_error": null(),
        },
    ),
)

DELETE_PUSH = Write("delete a push configuration", delete(push_config).where(_THIS), rows=None)

CLAIM_PUSH = Write("claim a delivery that is due", update(push_config).where(_TAKEN).values(due_at=bindparam("until")))

ADVANCE_PUSH = Write(
    "advance a delivery after the delivered events",
    update(push_config).where(_TAKEN).values(**given("next_event", due_at="until"), attempts=ZERO, last_error=null()),
)

_MORE = there_is(event, event.c.task == push_config.c.task, event.c.last >= bindparam("next_event"))
_OVER = there_is(task, task.c.id == push_config.c.task, text(task_ended("task.")))

COMPLETE_PUSH = Write(
    "complete a delivery until there are more events",
    update(push_config)
    .where(_TAKEN)
    .values(
        due_at=case((_MORE, ZERO), else_=null()),
        state=case((_MORE, word("active")), (_OVER, word("done")), else_=word("active")),
    ),
)

FAIL_PUSH = Write(
    "note a delivery that failed",
    update(push_config).where(_TAKEN).values(given("state", "attempts", due_at="until", last_error="error")),
)

REPLAY_PUSH = Write(
    "restart a stopped delivery",
    update(push_config)
    .where(_THIS, push_config.c.state.in_([word("stopped"), word("gone")]))
    .values(state=word("active"), due_at=ZERO, attempts=ZERO),
)

DELETE_PUSHES = Write(
    "delete the push configurations of a task",
    delete(push_config).where(matches(push_config, task="task")),
    rows=None,
)

# --- queries ----------------------------------------------------------------------------------------------------------

_COLUMNS = some(push_config, *_CONFIG)
"""The columns in the order of PushConfig."""

PUSH_CONFIGS = (
    select(*_COLUMNS).where(matches(push_config, task="task")).order_by(push_config.c.created_at, push_config.c.id)
)

DUE_PUSHES = limited(
    select(*_COLUMNS, push_config.c.next_event, push_config.c.due_at, push_config.c.attempts, task.c.visible)
    .select_from(push_config.join(task, task.c.id == push_config.c.task))
    .where(push_config.c.due_at <= bindparam("now"), push_config.c.host.not_in(json_values("excluded", "busy")))
    .order_by(push_config.c.due_at),
    bindparam("limit"),
)

NEXT_PUSH = select(
    there_is(push_config, push_config.c.state == word("active")),
    select(func.min(push_config.c.due_at)).where(push_config.c.due_at.is_not(None)).scalar_subquery(),
)

PUSH_EVENTS = limited(
    select(event.c.first, event.c.last, event.c.payload)
    .where(event.c.task == bindparam("task"), event.c.last >= bindparam("first"))
    .order_by(event.c.last),
    literal_column("16"),
)

HIDDEN_TASK = select(ONE).select_from(task).where(task.c.id == bindparam("task"), task.c.visible == ZERO)


PUSHES = limited(
    select(*_COLUMNS, task.c.agent, *some(push_config, "state", "next_event", "due_at", "attempts", "last_error"))
    .select_from(push_config.join(task, task.c.id == push_config.c.task))
    .where(
        matches(task, tenant="tenant", principal="principal"),
        push_config.c.state.in_([word("active"), word("stopped"), word("gone")]),
    )
    .order_by(push_config.c.created_at.desc(), push_config.c.task, push_config.c.id),
    literal_column("1000"),
)
