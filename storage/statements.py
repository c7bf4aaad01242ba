"""The statements that belong to no subject of their own: events, leases and processes, the gateway's own rows.

Law, of those in the other modules too: each says how many rows it must touch. Parameters are named as the fields of the
commit points; those of an event's row begin with `event_`.
"""

from sqlalchemy import bindparam, case, delete, func, insert, literal_column, null, or_, update
from sqlalchemy.dialects import sqlite

from gateway.commits.leases import TRIES
from storage.sql import compiled, equals, event, given, lapsed, next_number, process, secret, thread, turn, word
from storage.statement import Statement

NEW_EVENTS = Statement(
    "append the events behind the last one",
    compiled(
        insert(event)
        .inline()
        .values(
            **{name: bindparam(f"event_{name}") for name in ("task", "last", "payload")},
            # A group that was lost leaves no gap: what follows it is lost as well. No number is none that the column takes;
            # with `INSERT ... SELECT` SQLite would make a table of its own first, for each of these rows.
            first=case(
                (
                    next_number(event.c.last, equals(event.c.task, "event_task")) == bindparam("event_first"),
                    bindparam("event_first"),
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

FENCE_OFF = Statement(
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

BEAT = Statement(
    "say that the process lives",
    compiled(
        sqlite.insert(process)
        .values(**given("alive_until"), id=bindparam("process"))
        .on_conflict_do_update(index_elements=["id"], set_={"alive_until": bindparam("alive_until")})
    ),
)

FORGET_PROCESSES = Statement(
    "forget the processes that died", compiled(delete(process).where(lapsed(process.c.alive_until))), None
)

ASK_CANCEL = Statement(
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
