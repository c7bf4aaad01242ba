"""The statements and queries of what calls have left waiting at their backends. Law: as in `sql/turns.py`."""

from sqlalchemy import bindparam, delete, literal_column, select, update

from storage.schema.tables import service_call, thread, turn, withdrawal
from storage.sql.fragments import ZERO, Write, given, limited, matches, short, some, upsert, word

_ROW = ("id", "agent", "thread", "handle", "run", "due_at", "attempts")
"""The columns in the order of Withdrawal."""

NEXT_WITHDRAWALS = limited(
    select(*some(withdrawal, *_ROW)).where(withdrawal.c.due_at > ZERO).order_by(withdrawal.c.due_at), bindparam("limit")
)

WITHDRAWALS = select(*some(withdrawal, *_ROW)).where(matches(withdrawal, thread="thread"))

# A call that has failed did not change what the call before has left there.
_LAST_OF_TASK = limited(
    select(service_call.c.id)
    .select_from(turn.join(service_call, service_call.c.turn == turn.c.id))
    .where(matches(turn, task="task"), service_call.c.status != word("failed"))
    .order_by(turn.c.number.desc(), service_call.c.round.desc(), service_call.c.attempt.desc())
).scalar_subquery()

_ID = (
    thread.c.id + literal_column("' '") + short(service_call.c.handle_out + literal_column("' '") + service_call.c.run)
)

WITHDRAW = Write(
    "queue what the last call of the task has left waiting at its backend",
    upsert(withdrawal)
    .from_select(
        list(_ROW),
        select(_ID, thread.c.agent, thread.c.id, service_call.c.handle_out, service_call.c.run, bindparam("now"), ZERO)
        .select_from(
            service_call.join(turn, turn.c.id == service_call.c.turn).join(thread, thread.c.id == turn.c.thread)
        )
        .where(
            service_call.c.id == _LAST_OF_TASK,
            service_call.c.status == word("completed"),
            thread.c.handle_kind == word("static"),
            service_call.c.handle_out.is_not(None),
            service_call.c.run.is_not(None),
        ),
    )
    .on_conflict_do_nothing(),
    rows=None,
)

MOVE_WITHDRAWAL = Write(
    "move a withdrawal that is due",
    update(withdrawal).where(matches(withdrawal, id="job", due_at="due_at")).values(given("attempts", due_at="until")),
)

END_WITHDRAWAL = Write("end a withdrawal", delete(withdrawal).where(matches(withdrawal, id="job")), rows=None)
