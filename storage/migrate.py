"""Migrations by Alembic, for a database of an older version. Law: a schema newer than ours is left as it is."""

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from gateway.commits.failures import LedgerUnavailable
from storage.connection import connect


def migrate(path: Path, busy_timeout_ms: int, *, auto_migrate: bool) -> str:
    """The version of the schema, after migrating. Raises: LedgerUnavailable when it does not become ours."""
    engine = create_engine("sqlite://", creator=lambda: connect(str(path), busy_timeout_ms), poolclass=NullPool)
    # The lock is taken before the version is read: of two processes that start at once, one migrates.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            return _migrate(connection, path, auto_migrate=auto_migrate)
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise LedgerUnavailable(f"the schema of {str(path)!r} cannot be read or migrated: {error}") from error


def configuration(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "storage:migrations")
    config.attributes["connection"] = connection
    return config


def _migrate(connection: Connection, path: Path, *, auto_migrate: bool) -> str:
    config = configuration(connection)
    ours = [revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()]
    head = ours[0]
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in ours:
        raise LedgerUnavailable(f"the schema of {str(path)!r} has version {found}, newer than ours, {head}")
    if found != head:
        if not auto_migrate:
            raise LedgerUnavailable(
                f"the schema of {str(path)!r} has version {found}, older than ours, {head}, and auto_migrate is off"
            )
        command.upgrade(config, "head")
    return head
