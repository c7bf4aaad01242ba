"""Brings a database to the newest version by Alembic, in any dialect. Law: a newer schema is not changed.

A migration that only adds tables, or columns that may be NULL, or words a condition differently, sets `only_adds = True`.
Processes of the previous version can then use its schema at the same time as processes of the new version.
"""

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection

from gateway.ledger.errors import LedgerUnavailable
from storage.schema.tables import Row


def newest_first() -> list[Script]:
    """The migrations. All of them are loaded: it takes long, and is done before a lock is taken for which others wait."""
    return list(ScriptDirectory.from_config(configuration()).walk_revisions())


def configuration(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection, "metadata": Row.metadata})
    config.set_main_option("script_location", "storage.schema:migrations")
    return config


def upgrade(connection: Connection, place: str, scripts: list[Script], *, auto_migrate: bool) -> int | None:
    """Runs the migrations that the database lacks, in the open transaction. Returns the oldest version of the code that may
    use what they have made, or None where nothing was to do. `place` is the database in words.

    Raises: LedgerUnavailable when it has or keeps another version.
    """
    known = [script.revision for script in scripts]
    head = known[0]
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in known:
        raise LedgerUnavailable(f"{place} has version {found}, newer than ours, {head}")
    if found == head:
        return None
    if not auto_migrate:
        raise LedgerUnavailable(f"{place} has version {found}, older than ours, {head}, and auto_migrate is off")
    command.upgrade(configuration(connection), "head")
    oldest = next(script for script in scripts if not getattr(script.module, "only_adds", False))
    return int(oldest.revision)
