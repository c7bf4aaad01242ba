"""The statements of a thread that cannot simply go on: lost, unsynced, in a new epoch, on its way back. Law: as in
`statements`."""

from sqlalchemy import and_, bindparam, delete, exists, insert, literal_column, null, or_, select, text, update
from sqlalchemy.dialects import sqlite

from storage.conditions import LIVE
from storage.sql import compiled, delete_job, equals, given, service_call, thread, turn, word
from storage.statement import Statement

_IN_GENERATION = and_(equals(thread.c.id, "thread"), equals(thread.c.generation, "generation"))

LOSE_HANDLE = Statement(
    "note that the thread's handle is lost",
    compiled(update(thread).where(_IN_GENERATION, text(LIVE)).values(state=word("lost"))),
)

UNSYNC = Statement(
    "note that the end of a service call of the turn was not heard",
    compiled(
        update(thread)
        .where(
            equals(thread.c.id, "thread"),
            thread.c.storage_owner == word("backend"),
            thread.c.state == word("open"),
            exists(
                select(literal_column("1"))
                .select_from(service_call)
                .where(
                    equals(service_call.c.turn, "turn"),
                    service_call.c.status == word("unknown"),
                    or_(
                        service_call.c.pending_handle.is_not(None),
                        and_(thread.c.handle_kind == word("static"), thread.c.handle.is_not(None)),
                    ),
                )
            ),
        )
        .values(state=word("unsynced"))
    ),
    rows=None,
)

SYNCED = Statement(
    "note that the thread's last service call was looked up",
    compiled(update(thread).where(_IN_GENERATION, thread.c.state == word("unsynced")).values(state=word("open"))),
)

NEXT_EPOCH = Statement(
    "count the thread's next epoch",
    compiled(
        update(thread)
        .where(_IN_GENERATION, text(LIVE))
        .values(epoch=thread.c.epoch + literal_column("1"), generation=thread.c.generation + literal_column("1"))
    ),
)

_KEPT = (
    "context",
    "agent",
    "storage_owner",
    "handle_kind",
    "handle",
    "clean_handle",
    "generation",
    "adapter_state",
    "state_version",
)

KEEP_EPOCH = Statement(
    "keep the epoch that ends",
    compiled(
        insert(thread).from_select(
            ["id", "epoch", "state", *_KEPT],
            select(
                bindparam("closed"),
                thread.c.epoch - literal_column("1"),
                word("closed"),
                *(thread.c[name] for name in _KEPT),
            ).where(equals(thread.c.id, "thread")),
        )
    ),
)

BEGIN_EPOCH = Statement(
    "begin the thread's epoch",
    compiled(
        update(thread)
        .where(equals(thread.c.id, "thread"))
        .values(
            **given("storage_owner", "handle_kind", "handle"),
            clean_handle=bindparam("handle"),
            adapter_state=null(),
            state_version=null(),
            state=word("open"),
        )
    ),
)

LEAVE_BRANCH = Statement(
    "leave the handles of the turn for deletion",
    compiled(
        sqlite.insert(delete_job)
        .from_select(
            ["id", "adapter", "handle", "due_at", "attempts"],
            select(
                thread.c.id + literal_column("' '") + service_call.c.handle_out,
                thread.c.agent,
                service_call.c.handle_out,
                bindparam("now"),
                literal_column("0"),
            )
            .select_from(service_call.join(thread, equals(thread.c.id, "thread")))
            .where(equals(service_call.c.turn, "turn"), service_call.c.handle_out.is_not(None))
            .where(service_call.c.handle_out.is_distinct_from(service_call.c.handle_in)),
        )
        .on_conflict_do_nothing()
    ),
    rows=None,
)

WAY_BACK = Statement(
    "take the thread's handle back to where the turn began",
    compiled(
        update(thread)
        .where(equals(thread.c.id, "thread"), thread.c.handle.is_distinct_from(bindparam("handle")))
        .values(
            handle=bindparam("handle"),
            clean_handle=bindparam("handle"),
            generation=thread.c.generation + literal_column("1"),
        )
    ),
    rows=None,
)

_JOB = bindparam("thread").op("||")(literal_column("' '")).op("||")(bindparam("handle"))

NEW_ORPHAN = Statement(
    "leave a handle for deletion that no call of the thread has led to",
    compiled(
        sqlite.insert(delete_job)
        .from_select(
            ["id", "adapter", "handle", "due_at", "attempts"],
            select(_JOB, bindparam("agent"), bindparam("handle"), bindparam("now"), literal_column("0")).where(
                # Another process may have found it meanwhile, and gone on from it.
                ~exists(
                    select(literal_column("1"))
                    .select_from(service_call.join(turn, turn.c.id == service_call.c.turn))
                    .where(equals(turn.c.thread, "thread"), equals(service_call.c.handle_out, "handle"))
                )
            ),
        )
        .on_conflict_do_nothing()
    ),
    rows=None,
)

KEEP_HANDLE = Statement(
    "keep a handle that was left for deletion", compiled(delete(delete_job).where(delete_job.c.id == _JOB)), None
)
