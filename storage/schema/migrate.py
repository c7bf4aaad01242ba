"""Migrations by Alembic, for a database of an older version. Law: a newer schema is not changed.

A migration that only adds tables, or columns that may be NULL, or words a condition differently, sets `only_adds = True`.
Processes of the previous version can then use its schema at the same time as processes of the new version.
"""

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.errors import LedgerUnavailable
from storage.connection import OLDEST_USER, connect
from storage.schema.tables import Row


def migrate(path: Path, busy_timeout_ms: int, *, auto_migrate: bool) -> str:
    """The version of the schema, after migrating. Raises: LedgerUnavailable when it has or gets another version."""
    # Loaded before the lock is taken, as loading takes long and other processes wait for the lock.
    newest_first = list(ScriptDirectory.from_config(configuration()).walk_revisions())
    engine = create_engine("sqlite://", creator=lambda: connect(str(path), busy_timeout_ms), poolclass=NullPool)
    # The lock is taken before the version is read: of two processes that start at once, one migrates.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            return _migrate(connection, path, newest_first, auto_migrate=auto_migrate)
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise LedgerUnavailable(f"the schema of {str(path)!r} cannot be read or migrated: {error}") from error


def configuration(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection, "metadata": Row.metadata})
    config.set_main_option("script_location", "storage.schema:migrations")
    return config


def _migrate(connection: Connection, path: Path, scripts: list[Script], *, auto_migrate: bool) -> str:
    known = [script.revision for script in scripts]
    head = known[0]
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in known:
        raise LedgerUnavailable(f"the schema of {str(path)!r} has version {found}, newer than ours, {head}")
    if found != head:
        if not auto_migrate:
            raise LedgerUnavailable(
                f"the schema of {str(path)!r} has version {found}, older than ours, {head}, and auto_migrate is off"
            )
        command.upgrade(configuration(connection), "head")
        oldest = next(script for script in scripts if not getattr(script.module, "only_adds", False))
        connection.exec_driver_sql(f"{OLDEST_USER} = {int(oldest.revision)}")
    return head
