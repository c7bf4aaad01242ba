"""Migrates a database file of an older version. Law: as in `storage.schema.upgrade`; of two processes that start at once, one
migrates."""

import sqlite3
from pathlib import Path

from sqlalchemy import NullPool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.errors import LedgerUnavailable
from storage.connection import OLDEST_USER, connect
from storage.schema.upgrade import newest_first, upgrade


def migrate(path: Path, busy_timeout_ms: int, *, auto_migrate: bool) -> str:
    """The version of the schema, after migrating. Raises: LedgerUnavailable when it has or gets another version."""
    place = f"the schema of {str(path)!r}"
    scripts = newest_first()
    engine = create_engine("sqlite://", creator=lambda: connect(str(path), busy_timeout_ms), poolclass=NullPool)
    # The lock is taken before the version is read.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            oldest = upgrade(connection, place, scripts, auto_migrate=auto_migrate)
            if oldest is not None:
                connection.exec_driver_sql(f"{OLDEST_USER} = {oldest}")
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise LedgerUnavailable(f"{place} cannot be read or migrated: {error}") from error
    return scripts[0].revision
