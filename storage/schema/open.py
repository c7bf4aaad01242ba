"""Makes or checks the schema of a database file. Law: a newer schema is not changed, and used only as `usable` says.

An empty file gets the compiled schema; only an older version needs the migrations and their imports.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from gateway.ledger.errors import LedgerUnavailable
from storage.compiled import OLDEST, SCHEMA, VERSION
from storage.connection import OLDEST_USER, connect
from storage.schema.version import refuse_unfinished, usable

_OLDEST_SQLITE = (3, 37)
"""The first with STRICT tables."""

_TABLES = "SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
_VERSION = "SELECT version_num FROM alembic_version"


def prepare(path: Path, busy_timeout_ms: int, *, auto_migrate: bool) -> str:
    """The version of the schema, after migrating. Raises: LedgerUnavailable when it has or gets another version."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise LedgerUnavailable(f"SQLite {sqlite3.sqlite_version} is too old: 3.37 or newer is needed")
    try:
        with closing(connect(str(path), busy_timeout_ms)) as connection:
            if _fits(connection, auto_migrate=auto_migrate):
                return VERSION
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"the schema of {str(path)!r} cannot be read or made: {error}") from error
    from storage.schema.migrate import migrate

    return migrate(path, busy_timeout_ms, auto_migrate=auto_migrate)


def _fits(connection: sqlite3.Connection, *, auto_migrate: bool) -> bool:
    """Makes the schema where there is none. The lock comes first: of two processes that start at once, one makes it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute(_TABLES).fetchone() == (0,):
            if not auto_migrate:
                return False
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO alembic_version VALUES (?)", (VERSION,))
            connection.execute(f"{OLDEST_USER} = {OLDEST}")
            return True
        has_version = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
        found = connection.execute(_VERSION).fetchall() if has_version else []
        refuse_unfinished(found)
        return len(found) == 1 and usable(found[0][0], connection.execute(OLDEST_USER).fetchone()[0])
    finally:
        connection.execute("COMMIT")
