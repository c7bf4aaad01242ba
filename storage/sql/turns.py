"""The statements by which a turn and its task run, wait and end, and of their events.

Law, of the statements in all modules: each says how many rows it must change. Parameters have the names of the fields of the
commit points.
"""

from sqlalchemy import Text, and_, bindparam, case, func, insert, null, or_, text, update

from storage.schema.conditions import CALL_UNDER_WAY, TASK_OPEN, TASK_WAITING, TURN_UNFINISHED
from storage.schema.tables import event, service_call, task, turn
from storage.sql.fragments import ONE, ZERO, Write, given, matches, next_number, there_is, word

_earlier = turn.alias("earlier")

RUN_TURN = Write(
    "run a turn of the holder that has not ended, after all earlier ones of its thread",
    update(turn)
    .where(
        matches(turn, id="turn", task="task", thread="thread", process="holder"),
        text(TURN_UNFINISHED),
        ~there_is(
            _earlier,
            matches(_earlier, thread="thread"),
            _earlier.c.ended_at.is_(None),
            _earlier.c.number < turn.c.number,
        ),
    )
    .values(
        status=word("running"),
        base_generation=bindparam("base_generation"),
        started_at=func.coalesce(turn.c.started_at, bindparam("now")),
    ),
)

START_TASK = Write(
    "start a task that has not ended",
    update(task)
    .where(matches(task, id="task"), text(TASK_OPEN))
    .values(state=word("TASK_STATE_WORKING"), status_message=null(), status_at=bindparam("now")),
)

NEW_EVENTS = Write(
    "append the events after the last one",
    insert(event)
    .inline()
    .values(
        **given("task", "last", "payload"),
        # No gap after a lost group: later events are refused as well, by a NULL that the column does not take. For
        # `INSERT ... SELECT` SQLite would make a temporary table for each of these rows.
        first=case(
            (
                and_(
                    next_number(event.c.last, matches(event, task="task")) == bindparam("first"),
                    or_(
                        bindparam("holder", type_=Text).is_(None),
                        there_is(turn, matches(turn, task="task", process="holder"), turn.c.ended_at.is_(None)),
                    ),
                ),
                bindparam("first"),
            )
        ),
    ),
)


REVEAL_TASK = Write(
    "show a task that has not ended",
    update(task).where(matches(task, id="task"), text(TASK_OPEN)).values(visible=ONE),
)


# --- a turn waits, and continues ---

SUSPEND_TURN = Write(
    "suspend a turn that runs",
    update(turn)
    .where(matches(turn, id="turn", task="task"), turn.c.status == word("running"))
    .values(status=word("waiting"), tries=ZERO),
)

SET_TASK_WAITING = Write(
    "set a task that has not ended to wait for its caller",
    update(task)
    .where(matches(task, id="task"), text(TASK_OPEN))
    .values(**given("state", "status_message", status_at="now"), visible=ONE),
)

RESUME_TURN = Write(
    "resume a turn that waits",
    update(turn)
    .where(matches(turn, id="turn", task="task", thread="thread"), turn.c.status == word("waiting"))
    .values(**given("base_generation", process="holder"), status=word("running")),
)


# --- a turn ends ---

END_TURN = Write(
    "end a turn that has not ended",
    update(turn)
    .where(
        matches(turn, id="turn", task="task", thread="thread"),
        turn.c.ended_at.is_(None),
        or_(bindparam("process", type_=Text).is_(None), matches(turn, process="process")),
    )
    .values(
        ended_at=bindparam("now"),
        # A turn that was complete before its cancel counts.
        displaced=case((bindparam("status").in_([word("completed"), word("rejected")]), ZERO), else_=turn.c.displaced),
        **given("status", "failure_class", "last_event", "messages", "artifacts", "usage"),
    ),
)

ABANDON_CALLS = Write(
    "abandon the service calls of an ended turn",
    update(service_call)
    .where(matches(service_call, turn="turn"), text(CALL_UNDER_WAY))
    .values(status=word("unknown"), ended_at=bindparam("now")),
    rows=None,
)

CANCEL_TURNS = Write(
    "end the other turns of the task",
    update(turn)
    .where(matches(turn, task="task"), turn.c.id != bindparam("turn"), turn.c.ended_at.is_(None))
    .values(**given("last_event", ended_at="now"), status=word("cancelled"), messages=word("[]"), artifacts=word("[]")),
    rows=None,
)

_STATUS = given("state", "status_message", "last_event", "visible")

END_TASK = Write(
    "set the state of a task that has not ended",
    update(task).where(matches(task, id="task"), text(TASK_OPEN)).values(status_at=bindparam("now"), **_STATUS),
)

END_IDLE_TASK = Write(
    "set the state of a task that has not ended and has no other turn to run",
    update(task)
    .where(
        matches(task, id="task"),
        text(TASK_OPEN),
        ~there_is(turn, matches(turn, task="task"), turn.c.id != bindparam("turn"), turn.c.ended_at.is_(None)),
    )
    .values(status_at=bindparam("now"), **_STATUS),
)

SET_LAST_EVENT = Write(
    "leave a task that has not ended to its next turn",
    update(task).where(matches(task, id="task"), text(TASK_OPEN)).values(last_event=bindparam("last_event")),
)

CLOSE_TASK = Write(
    "end a task that waits",
    update(task)
    .where(matches(task, id="task"), text(TASK_WAITING))
    .values(**given("state", "last_event", status_at="now"), status_message=null()),
)
