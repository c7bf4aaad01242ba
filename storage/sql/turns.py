"""The statements that belong to no subject of their own: events, leases and processes, the gateway's own rows.

Law, of those in the other modules too: each says how many rows it must touch. Parameters are named as the fields of the
commit points; those of an event's row begin with `event_`.

The statements by which a turn and its task wait, change hands and end. Law: as in `statements`.
"""

from sqlalchemy import Text, bindparam, case, delete, insert, literal_column, null, or_, text, update

from gateway.ledger.leases import TRIES
from storage.schema.conditions import GOING, UNDER_WAY, WAITING
from storage.sql.fragments import (
    ONE,
    ZERO,
    Write,
    equals,
    event,
    given,
    lapsed,
    lesser,
    matches,
    next_number,
    process,
    random_bytes,
    secret,
    service_call,
    task,
    there_is,
    thread,
    turn,
    upsert,
    word,
)

NEW_EVENTS = Write(
    "append the events behind the last one",
    insert(event)
    .inline()
    .values(
        **given("task", "last", "payload"),
        # A group that was lost leaves no gap: what follows it is lost as well. No number is none that the column takes;
        # with `INSERT ... SELECT` SQLite would make a table of its own first, for each of these rows.
        first=case((next_number(event.c.last, equals(event.c.task, "task")) == bindparam("first"), bindparam("first"))),
    ),
)

RENEW_LEASE = Write(
    "renew the holder's lease",
    update(thread)
    .where(matches(thread, id="thread", lease_holder="holder"))
    .values(lease_until=bindparam("lease_until")),
    rows=None,
)

RELEASE_LEASE = Write(
    "give up the lease",
    update(thread)
    .where(matches(thread, id="thread", lease_holder="holder"))
    .values(lease_holder=null(), lease_until=null()),
    rows=None,
)

FENCE = Write(
    "take an expired lease from its holder",
    update(thread)
    .where(
        matches(thread, id="thread", generation="generation"),
        or_(thread.c.lease_holder.is_(None), lapsed(thread.c.lease_until)),
    )
    .values(lease_holder=null(), lease_until=null(), generation=thread.c.generation + ONE),
)

HEARTBEAT = Write(
    "say that the process lives",
    upsert(process)
    .values(**given("alive_until"), id=bindparam("process"))
    .on_conflict_do_update(index_elements=["id"], set_={"alive_until": bindparam("alive_until")}),
)

DELETE_DEAD_PROCESSES = Write(
    "forget the processes that died", delete(process).where(lapsed(process.c.alive_until)), None
)

REQUEST_CANCEL = Write(
    "ask the process that runs the turn to cancel it",
    update(turn)
    .where(equals(turn.c.id, "turn"), turn.c.ended_at.is_(None))
    .values(cancel_asked=ONE, tries=lesser(turn.c.tries, literal_column(str(TRIES - 1)))),
    rows=None,
)

PROBE = Write(
    "write something",
    upsert(secret)
    .inline()
    .values(name=word("probe"), value=random_bytes(literal_column("32")))
    .on_conflict_do_update(index_elements=["name"], set_={"value": random_bytes(literal_column("32"))}),
)

NEW_SECRET = Write(
    "make the secret where there is none",
    upsert(secret).values(**given("name", "value")).on_conflict_do_nothing(),
    rows=None,
)


SUSPEND_TURN = Write(
    "let a turn wait that runs",
    update(turn)
    .where(matches(turn, id="turn", task="task"), turn.c.status == word("running"))
    .values(status=word("waiting"), tries=ZERO),
)

SET_TASK_WAITING = Write(
    "let a task wait for its caller that has not ended",
    update(task)
    .where(equals(task.c.id, "task"), text(GOING))
    .values(status_at=bindparam("now"), visible=ONE, **given("state", "status_message")),
)

TAKE_OVER_TURN = Write(
    "take over a turn that runs",
    update(turn)
    .where(matches(turn, id="turn", thread="thread"), turn.c.status == word("running"))
    .values(**given("tries"), process=bindparam("holder"), base_generation=bindparam("base_generation")),
)

CLAIM_TURN = Write(
    "take a turn that waits from a process that died",
    update(turn)
    .where(
        equals(turn.c.id, "turn"),
        turn.c.status == word("accepted"),
        equals(turn.c.process, "previous_process"),
        ~there_is(process, equals(process.c.id, "previous_process"), process.c.alive_until >= bindparam("now")),
    )
    .values(process=bindparam("process"), tries=ZERO),
)

COUNT_TRIES = Write(
    "count the tries of a turn that was left",
    update(turn).where(matches(turn, id="turn", tries="before"), turn.c.ended_at.is_(None)).values(**given("tries")),
)

RESUME_TURN = Write(
    "go on with a turn that waited",
    update(turn)
    .where(matches(turn, id="turn", task="task", thread="thread"), turn.c.status == word("waiting"))
    .values(status=word("running"), process=bindparam("holder"), base_generation=bindparam("base_generation")),
)

END_TURN = Write(
    "end a turn that has not ended",
    update(turn)
    .where(
        matches(turn, id="turn", task="task", thread="thread"),
        turn.c.ended_at.is_(None),
        or_(bindparam("process", type_=Text).is_(None), equals(turn.c.process, "process")),
    )
    .values(
        ended_at=bindparam("now"),
        # What was complete before it could be cancelled counts.
        displaced=case((bindparam("status").in_([word("completed"), word("rejected")]), ZERO), else_=turn.c.displaced),
        **given("status", "failure_class", "last_event", "messages", "artifacts"),
    ),
)

ABANDON_CALLS = Write(
    "leave no service call of an ended turn under way",
    update(service_call)
    .where(equals(service_call.c.turn, "turn"), text(UNDER_WAY))
    .values(status=word("unknown"), ended_at=bindparam("now")),
    rows=None,
)

CANCEL_TURNS = Write(
    "end the other turns of the task",
    update(turn)
    .where(equals(turn.c.task, "task"), turn.c.id != bindparam("turn"), turn.c.ended_at.is_(None))
    .values(
        status=word("cancelled"),
        ended_at=bindparam("now"),
        last_event=bindparam("last_event"),
        messages=word("[]"),
        artifacts=word("[]"),
    ),
    rows=None,
)

_STATUS = given("state", "status_message", "last_event", "visible")

END_TASK = Write(
    "set the state of a task that has not ended",
    update(task).where(equals(task.c.id, "task"), text(GOING)).values(status_at=bindparam("now"), **_STATUS),
)

END_IDLE_TASK = Write(
    "set the state of a task that has not ended and has no other turn to run",
    update(task)
    .where(
        equals(task.c.id, "task"),
        text(GOING),
        ~there_is(turn, equals(turn.c.task, "task"), turn.c.id != bindparam("turn"), turn.c.ended_at.is_(None)),
    )
    .values(status_at=bindparam("now"), **_STATUS),
)

SET_LAST_EVENT = Write(
    "hand a task that has not ended to its next turn",
    update(task).where(equals(task.c.id, "task"), text(GOING)).values(last_event=bindparam("last_event")),
)

CLOSE_TASK = Write(
    "end a task that waits",
    update(task)
    .where(equals(task.c.id, "task"), text(WAITING))
    .values(status_message=null(), status_at=bindparam("now"), **given("state", "last_event")),
)
