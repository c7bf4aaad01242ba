"""Backups of a database of PostgreSQL, which either store can restore, and their return. Law: as `storage.schema.backup`.

A backup is a ledger of SQLite with all rows of one moment, compared when it is written and when it is restored.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from shutil import copyfile

from psycopg.sql import SQL, Identifier

from gateway.ledger.copying import CopyFailed, InUse, claim, copy_moment, refuse_use
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.rows import LedgerRows
from storage.errors import unavailable
from storage.folders import own_folder
from storage.postgres.rows import connection, open_rows, talking
from storage.postgres.settings import PostgresSettings
from storage.rows import open_rows as open_file
from storage.schema.backup import check, draft
from storage.schema.open import prepare

_TIMEOUT_MS = 5000
_LONGEST_NAME = 63
"""Characters of a name in PostgreSQL."""

_MADE = """
    SELECT 'TABLE', tablename FROM pg_tables WHERE schemaname = %(schema)s
    UNION ALL
    SELECT 'FUNCTION', proname FROM pg_proc WHERE pronamespace = CAST(quote_ident(%(schema)s) AS regnamespace)
"""


def back_up(settings: PostgresSettings, target: Path) -> None:
    """Raises: as `LedgerFactory.back_up`."""
    if target.exists():
        raise FileExistsError(f"{str(target)!r} is there already")
    with draft(target) as copied, _told():
        with open_rows(settings, False) as rows, open_file(copied.path, True) as file:
            copy_moment(rows, file, ("the database", "the backup"), lambda *_: None)
        try:
            with closing(sqlite3.connect(copied.path, isolation_level=None)) as copy:
                # Without a write-ahead log the backup is one file.
                copy.execute("PRAGMA journal_mode = DELETE")
            check(copied.path, target)
        except sqlite3.Error as error:
            raise unavailable(f"{str(target)!r} could not be written", error) from error
        copied.keep()


def restore(source: Path, settings: PostgresSettings, replace: bool) -> str | None:
    """Raises: as `LedgerFactory.restore`. The schema that is replaced is kept in the database, under the name that is
    returned."""
    try:
        check(source, source)
    except sqlite3.Error as error:
        raise unavailable(f"{str(source)!r} is no backup", error) from error
    with _current(source) as file, _told():
        used = _used(settings)
        if used and not replace:
            raise FileExistsError(f"there is a ledger in the schema {settings.database_schema!r} already")
        with open_rows(settings, False) as rows:
            _claim(rows)
            if used:
                return _swap(file, source, settings, rows)
            _fill(file, source, settings)
            return None


@contextmanager
def _current(source: Path) -> Iterator[Path]:
    """The backup, brought up to date in a copy: rows are copied in the schema of the code only."""
    with own_folder(source.absolute().parent, "restore") as folder:
        file = folder / "backup.db"
        file.touch(mode=0o600)
        copyfile(source, file)
        prepare(file, _TIMEOUT_MS, auto_migrate=True)
        yield file


def _used(settings: PostgresSettings) -> bool:
    """Whether there are rows, other than those of a restore that was cut."""
    with open_rows(settings, True) as rows:
        return rows.unfinished() is None and bool(rows.occupied())


def _fill(file: Path, source: Path, settings: PostgresSettings) -> None:
    with open_file(file, False) as backup, open_rows(settings, True) as rows:
        copy_moment(backup, rows, (f"the backup {source.absolute()}", "the database"), lambda *_: None)


def _claim(rows: LedgerRows) -> None:
    """Raises: InUse, LedgerUnavailable."""
    claim(rows, "the database")
    refuse_use(rows, "the database")


def _swap(file: Path, source: Path, settings: PostgresSettings, rows: LedgerRows) -> str:
    """Fills a schema beside that of the ledger, and changes the places of the tables at the end."""
    name = settings.database_schema
    moment = time.strftime("%Y%m%dt%H%M%S")
    beside, aside = _named(name, "restored", moment), _named(name, "replaced", moment)
    try:
        _fill(file, source, settings.model_copy(update={"database_schema": beside}))
        # Shows that the claim was not lost meanwhile, and finds gateways that do not heed it.
        _claim(rows)
        with talking(), connection(settings) as connected, connected.transaction():
            connected.execute(SQL("CREATE SCHEMA {}").format(Identifier(aside)))
            made = connected.execute(_MADE, {"schema": beside}).fetchall()
            # The schema itself stays, with its owner and its rights.
            for old, new in ((name, aside), (beside, name)):
                for kind, each in made:
                    move = SQL("ALTER {} {} SET SCHEMA {}")
                    connected.execute(move.format(SQL(kind), Identifier(old, each), Identifier(new)))
            connected.execute(SQL("DROP SCHEMA {}").format(Identifier(beside)))
    except BaseException:
        with suppress(LedgerUnavailable), talking(), connection(settings) as connected:
            connected.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(beside)))
        raise
    return f"the schema {aside}"


def _named(schema: str, what: str, moment: str) -> str:
    behind = f"_{what}_{moment}"
    return schema[: _LONGEST_NAME - len(behind)] + behind


@contextmanager
def _told() -> Iterator[None]:
    """Raises: LedgerUnavailable."""
    try:
        yield
    except InUse as error:
        raise LedgerUnavailable(str(error), "locked") from error
    except CopyFailed as error:
        raise LedgerUnavailable(str(error)) from error
