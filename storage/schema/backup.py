"""Backups of a database file, and their return. Law: a backup is whole and checked before it has its name; a restore
keeps the database that it replaces, and refuses a database that a process has open."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import msgspec

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.rows import NOT_WHOLE
from storage.compiled import VERSION
from storage.connection import OLDEST_USER
from storage.errors import trouble, unavailable
from storage.folders import own_folder
from storage.row_tables import COPYING
from storage.schema.access import absence, obstacle
from storage.schema.version import usable

_LOG_FILES = ("-wal", "-shm")
_TIMEOUT = 5.0


def back_up(path: Path, target: Path) -> None:
    """Copies the database to a new file, also while processes use it. One read transaction sees all of it, so that
    writers go on meanwhile.

    Raises: LedgerUnavailable; OSError when the file cannot be written or is there already.
    """
    _check_access(path, write=False)
    missing = absence(path)
    if missing is not None:
        raise LedgerUnavailable(missing)
    if target.exists():
        raise FileExistsError(f"{str(target)!r} is there already")
    with draft(target) as copied:
        try:
            with closing(_open(path)) as source, closing(_open(copied.path)) as copy:
                source.backup(copy)
                # Without a write-ahead log the backup is one file.
                copy.execute("PRAGMA journal_mode = DELETE")
            check(copied.path, path)
        except sqlite3.Error as error:
            raise unavailable(f"{str(path)!r} could not be copied", error) from error
        copied.keep()


def restore(source: Path, path: Path, *, replace: bool) -> Path | None:
    """Puts a copy of the backup where the database belongs. A database that is there is kept beside it, under the name
    that is returned.

    Raises: LedgerUnavailable when the backup is not usable, and with the trouble `locked` when a process has the database
    open; FileExistsError when a database is there and `replace` is false; other OSErrors.
    """
    try:
        check(source, source)
    except sqlite3.Error as error:
        raise unavailable(f"{str(source)!r} is no backup", error) from error
    _check_access(path, write=True)
    there = path.exists()
    if there and not replace:
        raise FileExistsError(f"there is a database {str(path)!r} already")
    if there:
        _close_log(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft(path) as copied:
        shutil.copyfile(source, copied.path)
        if there:
            _own_like(path, copied.path)
            shutil.copymode(path, copied.path)
            aside = _set_aside(path)
        else:
            if os.geteuid() == 0:
                _own_like(path.parent, copied.path)
            aside = next(_names_aside(path))
        for suffix in _LOG_FILES:
            # The log of another database would be replayed into this one.
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
        copied.keep()
    return aside if there else None


def _set_aside(path: Path) -> Path:
    """A second name of the file, which keeps it when the first one goes."""
    names = _names_aside(path)
    while True:
        aside = next(names)
        with suppress(FileExistsError):
            os.link(path, aside)
            return aside


def _names_aside(path: Path) -> Iterator[Path]:
    """Without end: two restores may come in one second."""
    name = f"{path.name}.replaced-{time.strftime('%Y%m%dT%H%M%S')}"
    yield path.with_name(name)
    for number in count(2):
        yield path.with_name(f"{name}-{number}")


def _own_like(model: Path, file: Path) -> None:
    """Gives the file the group of the model, and its owner where root restores: the gateway may run as another user.
    Raises: OSError."""
    wanted = model.stat()
    if os.geteuid() == 0:
        os.chown(file, wanted.st_uid, wanted.st_gid)
    elif wanted.st_gid != file.stat().st_gid:
        os.chown(file, -1, wanted.st_gid)


def _check_access(path: Path, *, write: bool) -> None:
    """Raises: LedgerUnavailable."""
    why = obstacle(path, write=write)
    if why is not None:
        raise LedgerUnavailable(f"{str(path)!r} cannot be opened: {why}")


class Draft(msgspec.Struct, frozen=True):
    """A file that gets its name when it is whole and on the disk."""

    path: Path
    target: Path

    def keep(self) -> None:
        _flush(self.path)
        self.path.replace(self.target)
        _flush(self.target.parent)


@contextmanager
def draft(target: Path) -> Iterator[Draft]:
    """An empty file, which only this user can read, beside `target`. It is deleted where it was not kept; that of a process
    which was killed, by the next one with a target in the same folder. Raises: OSError, which names the target."""
    with own_folder(target.absolute().parent, "draft") as folder:
        path = folder / target.name
        path.touch(0o600)
        try:
            yield Draft(path, target)
        except OSError as error:
            for name in ("filename", "filename2"):
                if str(getattr(error, name)) == str(path):
                    setattr(error, name, str(target))
            raise


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_TIMEOUT)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check(path: Path, named: Path) -> None:
    """`named`: the file that an error names, where this one is a draft. Raises: LedgerUnavailable when the file is damaged, not
    whole, or no ledger that this version can open; sqlite3.Error."""
    name = repr(str(named))
    if not path.is_file():
        raise LedgerUnavailable(f"there is no file {name}")
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        found = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
        if found != ["ok"]:
            raise LedgerUnavailable(f"{name} is damaged: {found[0]}")
        try:
            [[version]] = connection.execute("SELECT version_num FROM alembic_version").fetchall()
        except (sqlite3.OperationalError, ValueError) as error:
            raise LedgerUnavailable(f"{name} is not a database of this gateway") from error
        oldest = connection.execute(OLDEST_USER).fetchone()[0]
    if version == COPYING:
        raise LedgerUnavailable(f"{name} is not whole: {NOT_WHOLE}")
    if version > VERSION and not usable(version, oldest):
        raise LedgerUnavailable(f"the schema of {name} has version {version}, newer than ours, {VERSION}")


def _close_log(path: Path) -> None:
    """Raises: LedgerUnavailable when a process has the database open: only the last one can close the log."""
    try:
        with closing(_open(path)) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        # What is damaged can be replaced.
        if trouble(error) == "locked":
            raise LedgerUnavailable(f"a process has {str(path)!r} open. Stop the gateway first", "locked") from error
