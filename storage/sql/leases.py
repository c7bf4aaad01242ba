"""The statements of leases and processes: which process runs which turn. Law: as in `sql/turns.py`."""

from sqlalchemy import bindparam, case, delete, insert, literal_column, null, or_, select, update

from gateway.ledger.leases import TRIES
from storage.schema.tables import process, task, thread, turn, turn_note
from storage.sql.fragments import ONE, ZERO, Write, given, lapsed, lesser, matches, there_is, upsert, word

_TAKE_LEASE = (
    update(thread)
    .where(
        matches(thread, id="thread", generation="generation"),
        or_(thread.c.lease_holder.is_(None), matches(thread, lease_holder="holder"), lapsed(thread.c.lease_until)),
    )
    .values(**given("lease_until", lease_holder="holder"), generation=thread.c.generation + ONE)
)

TAKE_LEASE = Write("take the thread's lease", _TAKE_LEASE)

TAKE_SYNCED = Write(
    "take the lease of a thread whose calls are all known", _TAKE_LEASE.where(thread.c.state != word("unsynced"))
)
"""A call in doubt changes nothing of its thread but the state: a turn that looked at the thread before has to look again."""

KEEP_LEASE = Write(
    "keep the thread's lease",
    update(thread)
    .where(matches(thread, id="thread", generation="generation", lease_holder="holder"))
    .values(lease_until=bindparam("lease_until")),
)

RENEW_LEASE = Write(
    "renew the holder's lease",
    update(thread)
    .where(matches(thread, id="thread", lease_holder="holder"))
    .values(lease_until=bindparam("lease_until")),
    rows=None,
)

RELEASE_LEASE = Write(
    "release the lease",
    update(thread)
    .where(matches(thread, id="thread", lease_holder="holder"))
    .values(lease_holder=null(), lease_until=null()),
    rows=None,
)

FENCE = Write(
    "fence off the holder of an expired lease",
    update(thread)
    .where(
        matches(thread, id="thread", generation="generation"),
        or_(thread.c.lease_holder.is_(None), lapsed(thread.c.lease_until)),
    )
    .values(lease_holder=null(), lease_until=null(), generation=thread.c.generation + ONE),
)


# --- processes ---

HEARTBEAT = Write(
    "record the heartbeat of the process",
    upsert(process)
    .values(given("alive_until", id="process"))
    .on_conflict_do_update(index_elements=["id"], set_={"alive_until": bindparam("alive_until")}),
)

DELETE_DEAD_PROCESSES = Write("delete the dead processes", delete(process).where(lapsed(process.c.alive_until)), None)

REQUEST_CANCEL = Write(
    "ask the process that runs the turn to cancel it",
    update(turn)
    .where(matches(turn, id="turn"), turn.c.ended_at.is_(None))
    .values(cancel_asked=ONE, tries=lesser(turn.c.tries, literal_column(str(TRIES - 1)))),
    rows=None,
)


# --- turns of dead processes ---

TAKE_OVER_TURN = Write(
    "take over a turn that runs",
    update(turn)
    .where(matches(turn, id="turn", thread="thread"), turn.c.status == word("running"))
    .values(given("tries", "base_generation", process="holder")),
)

NOTE_TAKE_OVER = Write(
    "note that the turn was taken over",
    insert(turn_note).values(**given("turn", at="now", detail="holder"), kind=word("taken-over")),
)

CLAIM_TURN = Write(
    "claim a queued turn of a dead process",
    update(turn)
    .where(
        matches(turn, id="turn"),
        turn.c.status == word("accepted"),
        matches(turn, process="previous_process"),
        ~there_is(process, matches(process, id="previous_process"), process.c.alive_until >= bindparam("now")),
    )
    .values(process=bindparam("process"), tries=ZERO),
)

_GIVEN_UP = select(turn.c.task).where(matches(turn, id="turn"), turn.c.tries >= literal_column(str(TRIES)))

REVEAL_GIVEN_UP = Write(
    "show the task of a turn that is given up",
    update(task).where(task.c.visible == ZERO, task.c.id == _GIVEN_UP.scalar_subquery()).values(visible=ONE),
    rows=None,
)

COUNT_TRIES = Write(
    "count the tries of an orphaned turn",
    update(turn).where(matches(turn, id="turn", tries="before"), turn.c.ended_at.is_(None)).values(**given("tries")),
)

TAKE_TRIES_BACK = Write(
    "take tries of an orphaned turn back",
    update(turn)
    .where(matches(turn, id="turn"), turn.c.tries > ZERO, turn.c.ended_at.is_(None))
    .values(tries=case((turn.c.tries > bindparam("number"), turn.c.tries - bindparam("number")), else_=ZERO)),
    rows=None,
)
