"""The statements of an accepted message: its context, thread, task and turn. Law: as in `sql/turns.py`."""

from sqlalchemy import bindparam, insert, null, select, text, update

from storage.schema.conditions import TASK_OPEN, THREAD_LIVE
from storage.schema.tables import context, history_item, input_, task, thread, turn
from storage.sql.fragments import ONE, ZERO, Write, equals, given, matches, next_number, next_position, word

_OWNED = ("tenant", "principal")

NEW_CONTEXT = Write(
    "make the context",
    insert(context).values(
        id=bindparam("context"),
        **given(*_OWNED, "public_id"),
        state=word("open"),
        created_at=bindparam("now"),
        last_used_at=bindparam("now"),
    ),
)

USE_CONTEXT = Write(
    "use an open context of the caller",
    update(context)
    .where(
        equals(context.c.id, "context"),
        matches(context, tenant="tenant", principal="principal"),
        context.c.state == word("open"),
    )
    .values(last_used_at=bindparam("now")),
)

NEW_THREAD = Write(
    "make the thread",
    insert(thread).values(
        id=bindparam("thread"),
        **given("context", "agent", "epoch", "storage_owner", "handle_kind", "handle"),
        clean_handle=bindparam("handle"),
        **given("generation", "adapter_state", "state_version", "lease_holder", "lease_until"),
        state=word("open"),
    ),
)

NEW_TASK = Write(
    "make the task",
    insert(task).values(
        id=bindparam("task"),
        **given("context", *_OWNED, "agent", "visible", "last_event"),
        created_at=bindparam("now"),
        state=bindparam("state"),
        status_at=bindparam("now"),
    ),
)

CONTINUE_TASK = Write(
    "continue a task of the caller that has not ended",
    update(task)
    .where(
        matches(task, id="task", context="context"),
        matches(task, tenant="tenant", principal="principal", agent="agent"),
        text(TASK_OPEN),
    )
    .values(
        state=word("TASK_STATE_WORKING"),
        status_message=null(),
        status_at=bindparam("now"),
        last_event=bindparam("last_event"),
    ),
)

NEW_TURN = Write(
    "open a turn on the live thread of this context and agent",
    insert(turn).from_select(
        ["id", "task", "thread", "number", "status", "base_generation", "process", "cancel_asked", "accepted_at"],
        select(
            bindparam("turn"),
            bindparam("task"),
            thread.c.id,
            next_number(turn.c.number, equals(turn.c.thread, "thread")),
            bindparam("turn_status"),
            bindparam("base_generation"),
            bindparam("process"),
            ZERO,
            bindparam("now"),
        ).where(matches(thread, id="thread", context="context", agent="agent"), text(THREAD_LIVE)),
    ),
)

NEW_INPUT = Write(
    "store the message",
    insert(input_)
    .inline()
    .values(
        ordinal=ZERO,
        **given("turn", *_OWNED, "agent", "message_id", "digest", "key_kind", "key"),
        received_at=bindparam("now"),
        event=bindparam("last_event"),
        preferences=bindparam("preferences"),
        payload=bindparam("message"),
    ),
)

NEW_USER_ITEM = Write(
    "append the message to the thread",
    insert(history_item)
    .inline()
    .values(
        position=next_position,
        **given("thread", "turn"),
        input=ZERO,
        kind=word("user"),
        replayable=ONE,
        weight=bindparam("weight"),
    ),
)
