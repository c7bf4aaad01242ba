"""Who has the ledger of a schema open. Law: each connection of a gateway shares a lock of its schema for as long as it lives;
what copies or replaces all rows has that lock for itself, so neither begins while the other is there.

Behind a pooler a lock would stay at a connection of the server that others get. Gateways there hold none, nor do those of
earlier versions: both are known by the names of their connections only.

Source: PostgreSQL's manual, sections "Advisory Locks" and "pg_locks".
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import psycopg
from psycopg.rows import class_row

from storage.postgres.errors import Claimed, Failure, Lost
from storage.postgres.session import Connect, Session
from storage.postgres.settings import PostgresSettings
from storage.postgres.text import bound, plain

_LOCK = "hashtext('a2a-gateway ledger')"
"""The first half of the lock's key; the second one is the schema. Migrations have another one."""

_SHARE = plain(f"SELECT pg_try_advisory_lock_shared({_LOCK}, hashtext($1))", "schema")
_CLAIM = f"SELECT pg_try_advisory_lock({_LOCK}, hashtext(%(schema)s))".encode()
_OTHERS = f"""
    WITH held AS (
        SELECT pid, objid = CAST(hashtext(%(schema)s) AS oid) AS here, mode = 'ExclusiveLock' AS alone FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 2 AND granted AND classid = CAST({_LOCK} AS oid)
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    SELECT pid, coalesce(application_name, '') AS name, host(client_addr) AS address,
        CAST(extract(epoch FROM clock_timestamp() - state_change) AS bigint) AS since, state = 'idle' AS idle,
        held.pid IS NOT NULL AS known, coalesce(alone, false) AS alone
    FROM held FULL JOIN pg_stat_activity USING (pid)
    WHERE pid <> pg_backend_pid()
    AND (here OR (held.pid IS NULL AND datname = current_database() AND application_name = %(name)s))
    ORDER BY pid
""".encode()  # noqa: S608

_CLOSING, _LOOK = 2.0, 0.1
"""Seconds for which the server may show a connection that was closed, and between two looks."""

_DEAD = ("SET tcp_keepalives_idle = 20", "SET tcp_keepalives_interval = 10", "SET tcp_keepalives_count = 4")
"""The server notices within a minute that the machine of a copy is gone: no gateway starts before."""

_NAMED = 4
"""Connections that a text names one by one."""

_UNKNOWN = (
    ". A pooler before the server keeps connections open when the gateways behind it have stopped: have it RECONNECT, or stop "
    "it. If they are of a gateway of another schema, give that an application_name of its own"
)


class _Other(msgspec.Struct, frozen=True):
    """A connection. `since` are the seconds for which it does what it does, None where the server does not say so to this user;
    `known`: it holds a lock, `alone` that of a copy."""

    pid: int
    name: str
    address: str | None
    since: int | None
    idle: bool | None
    known: bool
    alone: bool

    def __str__(self) -> str:
        address = "" if self.address is None else f" from {self.address}"
        idle = f", idle for {self.since} s" if self.idle and self.since is not None else ""
        return f"pid {self.pid} {self.name!r}{address}{idle}"


def entered(connect: Connect, schema: str, *, on_silence: Callable[[], None] = lambda: None) -> Session:
    """A connection of a gateway that has the ledger open. Raises: Lost, Failure; Claimed while it is copied or restored."""
    session = connect(on_silence=on_silence)
    try:
        [(shared,)] = session.one(bound(_SHARE, {"schema": schema}))
        if not shared:
            raise Claimed
    except (Failure, Lost):
        session.close()
        raise
    return session


def claim(connection: psycopg.Connection[tuple[Any, ...]], settings: PostgresSettings) -> str | None:
    """Keeps gateways from opening the ledger for as long as the connection lives; it may be asked for again. In words, who has
    it open already, and what to do: then nothing is kept. Raises: psycopg.Error."""
    values = {"schema": settings.database_schema, "name": settings.application_name}
    for setting in _DEAD:
        connection.execute(setting.encode())
    until = time.monotonic() + _CLOSING
    while True:
        others = connection.cursor(row_factory=class_row(_Other)).execute(_OTHERS, values).fetchall()
        if not others and connection.execute(_CLAIM, values).fetchone() == (True,):
            return None
        if others and time.monotonic() >= until:
            return _told(others)
        time.sleep(_LOOK)


def _told(others: list[_Other]) -> str:
    copies = [other for other in others if other.alone]
    if copies:
        return f"another copy or restore works on it ({copies[0]}). Wait for its end"
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    unknown = "" if all(other.known for other in others) else _UNKNOWN
    return f"connections are open: {', '.join(map(str, others[:_NAMED]))}{more}. Stop its gateways{unknown}"
