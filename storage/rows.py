"""The rows of a database file, as they are copied. Law: as `gateway.ledger.rows`; a file that is copied from is only read."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import LONGEST_LEASE
from gateway.ledger.rows import Holder, Progress, Row, RowTable, Unfinished
from storage.compiled import DATA_VERSION, OLDEST, VERSION
from storage.connection import OLDEST_USER, connect
from storage.errors import read_failure, trouble, unavailable
from storage.job_ids import has_jobs, short_id, whole_ids
from storage.row_tables import COPYING, LAYOUT, NO_CODE, ROW_TABLES, key_as_bytes, progress_of, refuse_other
from storage.schema.access import obstacle
from storage.schema.open import prepare

_TIMEOUT_MS = 5000

_HOLDERS = f"""
    SELECT id, alive_until - :now FROM process WHERE alive_until >= :now
    UNION ALL
    SELECT lease_holder, max(lease_until) - :now FROM thread
    WHERE lease_until BETWEEN :now AND :now + {LONGEST_LEASE} GROUP BY lease_holder
"""  # noqa: S608
_UNFINISHED = "SELECT name, source, rows, after FROM ledger_copy"
_BEGIN = (
    "CREATE TABLE ledger_copy (name TEXT PRIMARY KEY, source TEXT NOT NULL, rows INTEGER NOT NULL, after BLOB) STRICT",
    f"UPDATE alembic_version SET version_num = '{COPYING}'",  # noqa: S608
    f"{OLDEST_USER} = {NO_CODE}",
)
_FINISH = (
    "DROP TABLE ledger_copy",
    f"UPDATE alembic_version SET version_num = '{VERSION}'",  # noqa: S608
    f"{OLDEST_USER} = {OLDEST}",
)


class SqliteRows:
    """The rows of a file whose schema fits. `watch` sees all that is committed, `snapshot` one moment."""

    layout, tables = LAYOUT, ROW_TABLES

    def __init__(self, watch: sqlite3.Connection, snapshot: sqlite3.Connection, *, used: bool) -> None:
        """`used`: a process had the file open before."""
        self._watch = watch
        self._snapshot = snapshot
        self._used = used
        self._version: int | None = None

    def claim(self) -> str | None:
        return "a process has it open. Stop its gateways" if self._used else None

    def holders(self) -> list[Holder]:
        with _reading():
            return [Holder(*found) for found in self._watch.execute(_HOLDERS, {"now": int(time.time() * 1000)})]

    def occupied(self) -> list[str]:
        with _reading():
            return [
                table.name
                for table in ROW_TABLES
                if self._watch.execute(f"SELECT 1 FROM {table.name} LIMIT 1").fetchone()  # noqa: S608
            ]

    def read(self, table: RowTable, after: Row | None = None) -> Iterator[Row]:
        names = _short_names if has_jobs(table) else _names
        key = names(table.key)
        behind = "" if after is None else f"WHERE ({key}) > ({_places(table.key)})"
        query = f"SELECT {names(table.columns)} FROM {table.name} {behind} ORDER BY {key}"  # noqa: S608
        with _reading():
            if not self._snapshot.in_transaction:
                self._version = self._data_version()
                self._snapshot.execute("BEGIN")
            with closing(self._snapshot.execute(query, after or ())) as cursor:
                yield from cursor

    def changed(self) -> bool:
        with _reading():
            return self._data_version() != self._version

    def _data_version(self) -> int:
        version: int = self._watch.execute(DATA_VERSION).fetchone()[0]
        return version

    def unfinished(self) -> Unfinished | None:
        with _reading():
            if not _has_table(self._watch, "ledger_copy"):
                return None
            found = self._watch.execute(_UNFINISHED).fetchall()
        return Unfinished(found[0][1], {name: progress_of(rows, after) for name, _, rows, after in found})

    def begin(self, source: str) -> None:
        with self._writing():
            if _has_table(self._watch, "ledger_copy"):
                raise Conflict("it has begun")
            for statement in _BEGIN:
                self._watch.execute(statement)
            self._watch.executemany(
                "INSERT INTO ledger_copy VALUES (?, ?, 0, NULL)", [(table.name, source) for table in ROW_TABLES]
            )

    def write(self, table: RowTable, rows: Sequence[Row], before: Progress, after: Progress) -> None:
        with self._writing():
            moved = self._watch.execute(
                "UPDATE ledger_copy SET rows = ?, after = ? WHERE name = ? AND rows = ?",
                (after.rows, key_as_bytes(after), table.name, before.rows),
            ).rowcount
            if moved != 1:
                raise Conflict(f"{table.name} has other rows than those that were copied")
            into = f"INSERT INTO {table.name} ({_names(table.columns)}) VALUES ({_places(table.columns)})"  # noqa: S608
            self._watch.executemany(into, [whole_ids(table, row) for row in rows] if has_jobs(table) else rows)

    def finish(self) -> None:
        with self._writing():
            for statement in _FINISH:
                self._watch.execute(statement)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction. Raises: Conflict, LedgerUnavailable."""
        try:
            self._watch.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._watch.in_transaction:  # SQLite has rolled back itself where the disk is full
                    self._watch.execute("ROLLBACK")
                raise
            self._watch.execute("COMMIT")
        except sqlite3.IntegrityError as error:
            raise Conflict(str(error)) from error
        except sqlite3.Error as error:
            raise unavailable("the database could not be written", error) from error


@contextmanager
def open_rows(path: Path, make: bool) -> Iterator[SqliteRows]:
    """Raises: as `LedgerFactory.rows`."""
    why = obstacle(path, write=make)
    if why is not None:
        raise LedgerUnavailable(why)
    if make:
        _make(path)
    elif not path.is_file():
        raise LedgerUnavailable("there is no such file")
    with ExitStack() as stack:
        with _reading():
            used = _is_open(path)
            watch = stack.enter_context(closing(_to_write(path) if make else _to_read(path)))
            snapshot = stack.enter_context(closing(_to_read(path)))
            refuse_other(_version(watch))
        yield SqliteRows(watch, snapshot, used=used)


def _is_open(path: Path) -> bool:
    """Whether a process has a file with a write-ahead log open: SQLite then gives nobody the file alone."""
    with closing(_to_read(path)) as connection:
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            if trouble(error) != "locked":
                raise
            return True
    return False


def _make(path: Path) -> None:
    """The file and its schema, where there is nothing. Raises: LedgerUnavailable."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)
    except OSError as error:
        raise LedgerUnavailable(f"it cannot be made: {error}") from error
    if path.stat().st_size == 0:
        prepare(path, _TIMEOUT_MS, auto_migrate=True)


def _to_write(path: Path) -> sqlite3.Connection:
    return connect(str(path), _TIMEOUT_MS)


def _to_read(path: Path) -> sqlite3.Connection:
    """Not with `mode=ro`: the files of the log would then stay behind."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=_TIMEOUT_MS / 1000)
    connection.execute("PRAGMA query_only = ON")
    connection.create_function("short_id", 1, short_id, deterministic=True)
    return connection


def _version(connection: sqlite3.Connection) -> str:
    """Raises: LedgerUnavailable."""
    found = connection.execute("SELECT version_num FROM alembic_version").fetchall() if _known(connection) else []
    if len(found) != 1:
        raise LedgerUnavailable("it is not a database of this gateway")
    version: str = found[0][0]
    return version


def _known(connection: sqlite3.Connection) -> bool:
    return _has_table(connection, "alembic_version") and _has_table(connection, "history_item")


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,))
    return found.fetchone() is not None


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _short_names(columns: Sequence[str]) -> str:
    return ", ".join('short_id("id")' if name == "id" else f'"{name}"' for name in columns)


def _places(columns: Sequence[str]) -> str:
    return ", ".join("?" * len(columns))


@contextmanager
def _reading() -> Iterator[None]:
    """Raises: LedgerUnavailable, CorruptRecord."""
    try:
        yield
    except sqlite3.Error as error:
        raise read_failure(error) from error
