"""The statements that belong to no subject of their own: events, leases and processes, the gateway's own rows.

Law, of those in the other modules too: each says how many rows it must touch. Parameters are named as the fields of the
commit points; those of an event's row begin with `event_`.

The statements by which a turn and its task wait, change hands and end. Law: as in `statements`.
"""

from sqlalchemy import bindparam, case, delete, exists, func, insert, literal_column, null, or_, select, text, update
from sqlalchemy.dialects import sqlite

from gateway.ledger.leases import TRIES
from storage.schema.conditions import GOING, UNDER_WAY, WAITING
from storage.sql.fragments import (
    compiled,
    equals,
    event,
    given,
    lapsed,
    next_number,
    process,
    secret,
    service_call,
    task,
    thread,
    turn,
    word,
)
from storage.statement import Statement

NEW_EVENTS = Statement(
    "append the events behind the last one",
    compiled(
        insert(event)
        .inline()
        .values(
            **given("task", "last", "payload"),
            # A group that was lost leaves no gap: what follows it is lost as well. No number is none that the column takes;
            # with `INSERT ... SELECT` SQLite would make a table of its own first, for each of these rows.
            first=case(
                (
                    next_number(event.c.last, equals(event.c.task, "task")) == bindparam("first"),
                    bindparam("first"),
                )
            ),
        )
    ),
)

RENEW_LEASE = Statement(
    "renew the holder's lease",
    compiled(
        update(thread)
        .where(equals(thread.c.id, "thread"), equals(thread.c.lease_holder, "holder"))
        .values(lease_until=bindparam("lease_until"))
    ),
    rows=None,
)

RELEASE_LEASE = Statement(
    "give up the lease",
    compiled(
        update(thread)
        .where(equals(thread.c.id, "thread"), equals(thread.c.lease_holder, "holder"))
        .values(lease_holder=null(), lease_until=null())
    ),
    rows=None,
)

FENCE = Statement(
    "take an expired lease from its holder",
    compiled(
        update(thread)
        .where(
            equals(thread.c.id, "thread"),
            equals(thread.c.generation, "generation"),
            or_(thread.c.lease_holder.is_(None), lapsed(thread.c.lease_until)),
        )
        .values(lease_holder=null(), lease_until=null(), generation=thread.c.generation + literal_column("1"))
    ),
)

HEARTBEAT = Statement(
    "say that the process lives",
    compiled(
        sqlite.insert(process)
        .values(**given("alive_until"), id=bindparam("process"))
        .on_conflict_do_update(index_elements=["id"], set_={"alive_until": bindparam("alive_until")})
    ),
)

DELETE_DEAD_PROCESSES = Statement(
    "forget the processes that died", compiled(delete(process).where(lapsed(process.c.alive_until))), None
)

REQUEST_CANCEL = Statement(
    "ask the process that runs the turn to cancel it",
    compiled(
        update(turn)
        .where(equals(turn.c.id, "turn"), turn.c.ended_at.is_(None))
        .values(cancel_asked=literal_column("1"), tries=func.min(turn.c.tries, literal_column(str(TRIES - 1))))
    ),
    rows=None,
)

PROBE = Statement(
    "write something",
    compiled(
        sqlite.insert(secret)
        .inline()
        .values(name=word("probe"), value=func.randomblob(literal_column("32")))
        .on_conflict_do_update(index_elements=["name"], set_={"value": func.randomblob(literal_column("32"))})
    ),
)

NEW_SECRET = Statement(
    "make the secret where there is none",
    compiled(sqlite.insert(secret).values(**given("name", "value")).on_conflict_do_nothing()),
    rows=None,
)


SUSPEND_TURN = Statement(
    "let a turn wait that runs",
    compiled(
        update(turn)
        .where(equals(turn.c.id, "turn"), equals(turn.c.task, "task"), turn.c.status == word("running"))
        .values(status=word("waiting"), tries=literal_column("0"))
    ),
)

SET_TASK_WAITING = Statement(
    "let a task wait for its caller that has not ended",
    compiled(
        update(task)
        .where(equals(task.c.id, "task"), text(GOING))
        .values(status_at=bindparam("now"), visible=literal_column("1"), **given("state", "status_message"))
    ),
)

TAKE_OVER_TURN = Statement(
    "take over a turn that runs",
    compiled(
        update(turn)
        .where(equals(turn.c.id, "turn"), equals(turn.c.thread, "thread"), turn.c.status == word("running"))
        .values(**given("tries"), process=bindparam("holder"), base_generation=bindparam("base_generation"))
    ),
)

CLAIM_TURN = Statement(
    "take a turn that waits from a process that died",
    compiled(
        update(turn)
        .where(
            equals(turn.c.id, "turn"),
            turn.c.status == word("accepted"),
            equals(turn.c.process, "previous_process"),
            ~exists(
                select(literal_column("1"))
                .select_from(process)
                .where(equals(process.c.id, "previous_process"), process.c.alive_until >= bindparam("now"))
            ),
        )
        .values(process=bindparam("process"), tries=literal_column("0"))
    ),
)

COUNT_TRIES = Statement(
    "count the tries of a turn that was left",
    compiled(
        update(turn)
        .where(equals(turn.c.id, "turn"), equals(turn.c.tries, "before"), turn.c.ended_at.is_(None))
        .values(**given("tries"))
    ),
)

RESUME_TURN = Statement(
    "go on with a turn that waited",
    compiled(
        update(turn)
        .where(
            equals(turn.c.id, "turn"),
            equals(turn.c.task, "task"),
            equals(turn.c.thread, "thread"),
            turn.c.status == word("waiting"),
        )
        .values(status=word("running"), process=bindparam("holder"), base_generation=bindparam("base_generation"))
    ),
)

END_TURN = Statement(
    "end a turn that has not ended",
    compiled(
        update(turn)
        .where(
            equals(turn.c.id, "turn"),
            equals(turn.c.task, "task"),
            equals(turn.c.thread, "thread"),
            turn.c.ended_at.is_(None),
            or_(bindparam("process").is_(None), equals(turn.c.process, "process")),
        )
        .values(
            ended_at=bindparam("now"),
            # What was complete before it could be cancelled counts.
            displaced=case(
                (bindparam("status").in_([word("completed"), word("rejected")]), literal_column("0")),
                else_=turn.c.displaced,
            ),
            **given("status", "failure_class", "last_event", "messages", "artifacts"),
        )
    ),
)

ABANDON_CALLS = Statement(
    "leave no service call of an ended turn under way",
    compiled(
        update(service_call)
        .where(equals(service_call.c.turn, "turn"), text(UNDER_WAY))
        .values(status=word("unknown"), ended_at=bindparam("now"))
    ),
    rows=None,
)

CANCEL_TURNS = Statement(
    "end the other turns of the task",
    compiled(
        update(turn)
        .where(equals(turn.c.task, "task"), turn.c.id != bindparam("turn"), turn.c.ended_at.is_(None))
        .values(
            status=word("cancelled"),
            ended_at=bindparam("now"),
            last_event=bindparam("last_event"),
            messages=word("[]"),
            artifacts=word("[]"),
        )
    ),
    rows=None,
)

_STATUS = given("state", "status_message", "last_event", "visible")

END_TASK = Statement(
    "set the state of a task that has not ended",
    compiled(update(task).where(equals(task.c.id, "task"), text(GOING)).values(status_at=bindparam("now"), **_STATUS)),
)

END_IDLE_TASK = Statement(
    "set the state of a task that has not ended and has no other turn to run",
    compiled(
        update(task)
        .where(
            equals(task.c.id, "task"),
            text(GOING),
            ~exists(
                select(literal_column("1"))
                .select_from(turn)
                .where(equals(turn.c.task, "task"), turn.c.id != bindparam("turn"), turn.c.ended_at.is_(None))
            ),
        )
        .values(status_at=bindparam("now"), **_STATUS)
    ),
)

SET_LAST_EVENT = Statement(
    "hand a task that has not ended to its next turn",
    compiled(update(task).where(equals(task.c.id, "task"), text(GOING)).values(last_event=bindparam("last_event"))),
)

CLOSE_TASK = Statement(
    "end a task that waits",
    compiled(
        update(task)
        .where(equals(task.c.id, "task"), text(WAITING))
        .values(status_message=null(), status_at=bindparam("now"), **given("state", "last_event"))
    ),
)
