"""The statements by which a message is accepted: its context, thread, task and turn. Law: as in `statements`."""

from sqlalchemy import bindparam, insert, literal_column, null, select, text, update

from storage.schema.conditions import GOING, LIVE
from storage.sql.fragments import (
    compiled,
    context,
    equals,
    given,
    history_item,
    input_,
    next_number,
    next_position,
    task,
    thread,
    turn,
    word,
)
from storage.statement import Statement

_OWNED = ("tenant", "principal")

NEW_CONTEXT = Statement(
    "make the context",
    compiled(
        insert(context).values(
            id=bindparam("context"),
            **given(*_OWNED, "public_id"),
            state=word("open"),
            created_at=bindparam("now"),
            last_used_at=bindparam("now"),
        )
    ),
)

USE_CONTEXT = Statement(
    "use an open context of the caller",
    compiled(
        update(context)
        .where(
            equals(context.c.id, "context"),
            *(equals(context.c[name], name) for name in _OWNED),
            context.c.state == word("open"),
        )
        .values(last_used_at=bindparam("now"))
    ),
)

NEW_THREAD = Statement(
    "make the thread",
    compiled(
        insert(thread).values(
            id=bindparam("thread"),
            **given("context", "agent", "epoch", "storage_owner", "handle_kind", "handle"),
            clean_handle=bindparam("handle"),
            **given("generation", "adapter_state", "state_version", "lease_holder", "lease_until"),
            state=word("open"),
        )
    ),
)

NEW_TASK = Statement(
    "make the task",
    compiled(
        insert(task).values(
            id=bindparam("task"),
            **given("context", *_OWNED, "agent", "visible", "last_event"),
            created_at=bindparam("now"),
            state=bindparam("state"),
            status_at=bindparam("now"),
        )
    ),
)

CONTINUE_TASK = Statement(
    "continue a task of the caller that has not ended",
    compiled(
        update(task)
        .where(
            equals(task.c.id, "task"),
            equals(task.c.context, "context"),
            *(equals(task.c[name], name) for name in (*_OWNED, "agent")),
            text(GOING),
        )
        .values(
            state=word("TASK_STATE_WORKING"),
            status_message=null(),
            status_at=bindparam("now"),
            last_event=bindparam("last_event"),
        )
    ),
)

NEW_TURN = Statement(
    "open a turn on the live thread of this context and agent",
    compiled(
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
                literal_column("0"),
                bindparam("now"),
            ).where(
                equals(thread.c.id, "thread"),
                equals(thread.c.context, "context"),
                equals(thread.c.agent, "agent"),
                text(LIVE),
            ),
        )
    ),
)

NEW_INPUT = Statement(
    "store the message",
    compiled(
        insert(input_)
        .inline()
        .values(
            ordinal=literal_column("0"),
            **given("turn", *_OWNED, "agent", "message_id", "digest", "key_kind", "key"),
            received_at=bindparam("now"),
            event=bindparam("last_event"),
            preferences=bindparam("preferences"),
            payload=bindparam("message"),
        )
    ),
)

NEW_USER_ITEM = Statement(
    "put the message into the thread",
    compiled(
        insert(history_item)
        .inline()
        .values(
            position=next_position,
            **given("thread", "turn"),
            input=literal_column("0"),
            kind=word("user"),
            replayable=literal_column("1"),
            weight=bindparam("weight"),
        )
    ),
)
