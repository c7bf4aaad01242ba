"""Migrates a database of PostgreSQL of an older version, while gateways use it. Law: as in `storage.schema.upgrade`; of several
processes that start at once one migrates, under the lock that also orders the making of the schema.

What changes a table waits for the transactions that use it, and all later ones wait behind it. So it waits briefly, gives way
and tries again.
"""

import time
from math import ceil

import psycopg
from sqlalchemy import Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from gateway.ledger.errors import LedgerUnavailable
from storage.postgres.errors import Failure, Lost, unavailable
from storage.postgres.settings import PostgresSettings
from storage.schema.upgrade import newest_first, upgrade

_TRIES = 30
_PAUSE = 1.0
"""Seconds between two of them."""

_TAKEN = frozenset({"40P01", "55P03"})
"""What a statement gets that would have waited too long for a lock, or for one that waits for it."""

_WAIT = (
    "SET LOCAL lock_timeout = 0",
    "SET LOCAL statement_timeout = '10min'",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
)
"""For another process that migrates. What a migration computes between its statements takes what it takes."""

_GIVE_WAY = ("SET LOCAL lock_timeout = '1s'", "SET LOCAL statement_timeout = 0")
"""For tables. A statement that has its locks takes what it takes."""


def migrate(settings: PostgresSettings, *, pooled: bool, auto_migrate: bool) -> str:
    """The version of the schema, after migrating. `pooled`: connections have no settings of their own.

    Raises: LedgerUnavailable when it has or gets another version.
    """
    schema = settings.database_schema
    place = f"the schema {schema!r}"
    scripts = newest_first()
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(
            settings.conninfo(options=not pooled),
            connect_timeout=ceil(settings.connect_timeout),
            # What is prepared is lost behind a pooler that gives each transaction another connection.
            prepare_threshold=None,
        ),
        poolclass=NullPool,
        use_native_hstore=False,
    )

    def once() -> None:
        with engine.begin() as connection:
            # The lock is taken before the version is read.
            _lock(connection, schema)
            oldest = upgrade(connection, place, scripts, auto_migrate=auto_migrate)
            if oldest is not None:
                connection.exec_driver_sql("UPDATE ledger_format SET oldest = %s", (oldest,))

    for left in reversed(range(_TRIES)):
        try:
            once()
            break
        except (DBAPIError, psycopg.Error) as error:
            if left and _state(error) in _TAKEN:
                time.sleep(_PAUSE)
                continue
            raise _unavailable(place, error) from error
    return scripts[0].revision


def _lock(connection: Connection, schema: str) -> None:
    for setting in _WAIT:
        connection.exec_driver_sql(setting)
    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('a2a-gateway'), hashtext(%s))", (schema,))
    for setting in _GIVE_WAY:
        connection.exec_driver_sql(setting)


def _state(error: DBAPIError | psycopg.Error) -> str | None:
    found = error.orig if isinstance(error, DBAPIError) else error
    return found.sqlstate if isinstance(found, psycopg.Error) else None


def _unavailable(place: str, error: DBAPIError | psycopg.Error) -> LedgerUnavailable:
    """Without the statement and its values, which SQLAlchemy's text quotes."""
    found = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(found, psycopg.Error) and found.sqlstate is not None:
        return unavailable(f"{place} cannot be migrated", Failure(found.sqlstate, found.diag.message_primary or ""))
    return unavailable(f"{place} cannot be migrated", Lost(str(found)))
