"""The statements of an accepted message: its context, thread, task and turn. Law: as in `sql/turns.py`."""

from sqlalchemy import bindparam, insert, null, select, text, update

from storage.schema.conditions import TASK_OPEN, THREAD_LIVE
from storage.schema.tables import context, history_item, input_, task, thread, turn
from storage.sql.fragments import ONE, ZERO, Write, given, matches, next_number, next_position, word

_OWNED = ("tenant", "principal")

NEW_CONTEXT = Write(
    "make the context",
    insert(context).values(
        **given(*_OWNED, "public_id", id="context", created_at="now", last_used_at="now"), state=word("open")
    ),
)

USE_CONTEXT = Write(
    "use an open context of the caller",
    update(context)
    .where(matches(context, id="context", tenant="tenant", principal="principal"), context.c.state == word("open"))
    .values(last_used_at=bindparam("now")),
)

NEW_THREAD = Write(
    "make the thread",
    insert(thread).values(
        **given("context", "agent", "epoch", "storage_owner", "handle_kind", "handle", "generation", id="thread"),
        **given("adapter_state", "state_version", "lease_holder", "lease_until", clean_handle="handle"),
        **given("began_by", began_at="now"),
        state=word("open"),
    ),
)

NEW_TASK = Write(
    "make the task",
    insert(task).values(
        **given("context", *_OWNED, "agent", "visible", "last_event", "state"),
        **given(id="task", created_at="now", status_at="now"),
    ),
)

CONTINUE_TASK = Write(
    "continue a task of the caller that has not ended",
    update(task)
    .where(
        matches(task, id="task", context="context", tenant="tenant", principal="principal", agent="agent"),
        text(TASK_OPEN),
    )
    .values(**given("last_event", status_at="now"), state=word("TASK_STATE_WORKING"), status_message=null()),
)

_LIVE_THREAD = (
    select(thread.c.id)
    .where(matches(thread, id="thread", context="context", agent="agent"), text(THREAD_LIVE))
    .scalar_subquery()
)
"""NULL where there is none, which no turn takes. For a turn that is made by a SELECT, SQLite would fill a table of its own and
keep a journal of the statement, which takes it 14 µs instead of 10."""

NEW_TURN = Write(
    "open a turn on the live thread of this context and agent",
    insert(turn)
    .inline()
    .values(
        **given("task", "base_generation", "process", "started_at", "trace"),
        **given(id="turn", status="turn_status", accepted_at="now"),
        thread=_LIVE_THREAD,
        number=next_number(turn.c.number, matches(turn, thread="thread")),
        cancel_asked=ZERO,
    ),
)

NEW_INPUT = Write(
    "store the message",
    insert(input_)
    .inline()
    .values(
        **given("turn", *_OWNED, "agent", "message_id", "digest", "key_kind", "key", "preferences"),
        **given(received_at="now", event="last_event", payload="message"),
        ordinal=ZERO,
    ),
)

NEW_USER_ITEM = Write(
    "append the message to the thread",
    insert(history_item)
    .inline()
    .values(**given("thread", "turn", "weight"), position=next_position, input=ZERO, kind=word("user"), replayable=ONE),
)
