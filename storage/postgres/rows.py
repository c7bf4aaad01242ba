"""The rows of a database of PostgreSQL, as they are copied. Law: as `gateway.ledger.rows`; a database that is copied from is
only read.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import LONGEST_LEASE
from gateway.ledger.rows import Holder, Progress, Row, RowTable, Unfinished, Value
from storage.compiled import OLDEST, VERSION
from storage.postgres.errors import Failure, Lost, unavailable
from storage.postgres.presence import claim
from storage.postgres.schema import prepare
from storage.postgres.session import MARGIN, Session
from storage.postgres.settings import DIRECT, PostgresSettings
from storage.postgres.text import escaped, unescaped
from storage.row_tables import COPYING, LAYOUT, NO_CODE, ROW_TABLES, key_as_bytes, progress_of, refuse_other

_HOLDERS = SQL("""
    SELECT id, alive_until - server_time() FROM process WHERE alive_until >= server_time()
    UNION ALL
    SELECT lease_holder, CAST(max(lease_until) AS bigint) - server_time() FROM thread
    WHERE lease_until BETWEEN server_time() AND server_time() + {} GROUP BY lease_holder
""").format(LONGEST_LEASE)
_WRITERS = "SELECT id, number FROM ledger_writer WHERE number > 0"
"""Each group of a gateway changes a row."""

_OWN_NAME = "a2a-gateway copy"
"""What the server shows of the connections of copies, which are not those of gateways."""

_TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = %s"
_UNFINISHED = "SELECT name, source, rows, after FROM ledger_copy"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A statement lasts as long as the other ledger takes to write what it gives.
_PATIENCE = ("SET LOCAL statement_timeout = 0", "SET LOCAL idle_in_transaction_session_timeout = 0")
_BEGIN = SQL("""
    CREATE TABLE ledger_copy (name text PRIMARY KEY, source text NOT NULL, rows bigint NOT NULL, after bytea);
    UPDATE alembic_version SET version_num = {};
    UPDATE ledger_format SET oldest = {}
""").format(COPYING, NO_CODE)
_FINISH = SQL("""
    DROP TABLE ledger_copy;
    UPDATE alembic_version SET version_num = {};
    UPDATE ledger_format SET oldest = {}
""").format(VERSION, OLDEST)

_POOLED = "a pooler stands before the server, and all rows are read in one transaction: name the server itself"

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresRows:
    """The rows of a database whose schema fits. `watch` sees all that is committed, `snapshot` one moment."""

    layout, tables = LAYOUT, ROW_TABLES

    def __init__(self, settings: PostgresSettings, watch: Connection, snapshot: Connection) -> None:
        self._settings = settings
        self._watch = watch
        self._snapshot = snapshot
        self._writers: set[tuple[Any, ...]] | None = None

    def claim(self) -> str | None:
        with talking():
            return claim(self._watch, self._settings)

    def holders(self) -> list[Holder]:
        with talking():
            return [Holder(*found) for found in self._watch.execute(_HOLDERS)]

    def occupied(self) -> list[str]:
        query = SQL("SELECT EXISTS (SELECT 1 FROM {})")
        with talking():
            found = {
                table.name: _one(self._watch.execute(query.format(Identifier(table.name)))) for table in ROW_TABLES
            }
        return [name for name, (some,) in found.items() if some]

    def read(self, table: RowTable, after: Row | None = None) -> Iterator[Row]:
        query = SQL("SELECT {} FROM {}").format(_names(table.columns), Identifier(table.name))
        if after is not None:
            places = SQL(", ").join([SQL("%s")] * len(after))
            query += SQL(" WHERE ({}) > ({})").format(_names(table.key), places)
        query += SQL(" ORDER BY {}").format(_names(table.key))
        with talking():
            if self._writers is None:
                self._begin_snapshot()
            with self._snapshot.cursor(binary=True) as cursor:
                for row in cursor.stream(query, [*map(_stored, after or ())]):
                    yield tuple([unescaped(value) if isinstance(value, str) else value for value in row])

    def _begin_snapshot(self) -> None:
        for statement in (_SNAPSHOT, *_PATIENCE):
            self._snapshot.execute(statement)
        self._writers = set(self._snapshot.execute(_WRITERS))

    def changed(self) -> bool:
        with talking():
            return not set(self._watch.execute(_WRITERS)) <= (self._writers or set())

    def unfinished(self) -> Unfinished | None:
        with talking():
            if _one(self._watch.execute("SELECT to_regclass('ledger_copy')")) == (None,):
                return None
            found = self._watch.execute(_UNFINISHED).fetchall()
        return Unfinished(found[0][1], {name: progress_of(rows, after) for name, _, rows, after in found})

    def begin(self, source: str) -> None:
        with self._writing() as cursor:
            cursor.execute(_BEGIN)
            cursor.executemany(
                "INSERT INTO ledger_copy VALUES (%s, %s, 0, NULL)", [(table.name, source) for table in ROW_TABLES]
            )

    def write(self, table: RowTable, rows: Sequence[Row], before: Progress, after: Progress) -> None:
        into = SQL("COPY {} ({}) FROM STDIN").format(Identifier(table.name), _names(table.columns))
        with self._writing() as cursor:
            cursor.execute(
                "UPDATE ledger_copy SET rows = %s, after = %s WHERE name = %s AND rows = %s",
                (after.rows, key_as_bytes(after), table.name, before.rows),
            )
            if cursor.rowcount != 1:
                raise Conflict(f"{table.name} has other rows than those that were copied")
            with cursor.copy(into) as copy:
                for row in rows:
                    copy.write_row([*map(_stored, row)])

    def finish(self) -> None:
        with self._writing() as cursor:
            cursor.execute(_FINISH)
        with talking():
            for table in ROW_TABLES:
                self._watch.execute(SQL("ANALYZE {}").format(Identifier(table.name)))

    @contextmanager
    def _writing(self) -> Iterator["psycopg.Cursor[tuple[Any, ...]]"]:
        """A transaction. Raises: Conflict, LedgerUnavailable."""
        with talking():
            try:
                with self._watch.transaction(), self._watch.cursor() as cursor:
                    for statement in _PATIENCE:
                        cursor.execute(statement)
                    yield cursor
            except (psycopg.IntegrityError, psycopg.errors.DuplicateTable) as error:
                raise Conflict(_text(error)) from error


@contextmanager
def open_rows(settings: PostgresSettings, make: bool) -> Iterator[PostgresRows]:
    """Raises: as `LedgerFactory.rows`."""
    connect = partial(connection, settings)
    with ExitStack() as stack:
        with talking():
            watch = stack.enter_context(connect())
            if make and _one(watch.execute(_TABLES, _schema(settings))) == (0,):
                _make(settings)
            refuse_other(_version(watch))
            snapshot = stack.enter_context(connect())
        yield PostgresRows(settings, watch, snapshot)


def connection(settings: PostgresSettings) -> Connection:
    """One with the settings of the schema. Raises: psycopg.Error, LedgerUnavailable."""
    made = psycopg.connect(
        _own(settings).conninfo(options=True),
        connect_timeout=max(2, round(settings.connect_timeout)),
        autocommit=True,
        prepare_threshold=None,
    )
    if _one(made.execute(SQL("SELECT current_setting({}, true)").format(DIRECT))) != ("on",):
        made.close()
        raise LedgerUnavailable(_POOLED)
    return made


def _own(settings: PostgresSettings) -> PostgresSettings:
    return settings.model_copy(update={"application_name": _OWN_NAME})


def _make(settings: PostgresSettings) -> None:
    """Raises: LedgerUnavailable."""
    settings = _own(settings)
    try:
        timeouts = settings.connect_timeout, settings.statement_timeout + MARGIN
        session = Session(settings.conninfo(options=True), *timeouts, prepares=False)
    except Lost as error:
        raise unavailable("the database does not open", error) from error
    try:
        prepare(session, settings, pooled=False, auto_migrate=True)
    finally:
        session.close()


def _schema(settings: PostgresSettings) -> tuple[str]:
    return (settings.database_schema,)


def _version(connection: Connection) -> str:
    """Raises: LedgerUnavailable."""
    with suppress(psycopg.errors.UndefinedTable):
        found = connection.execute("SELECT version_num FROM alembic_version, ledger_format").fetchall()
        if len(found) == 1:
            return str(found[0][0])
    raise LedgerUnavailable("its schema is not one of this gateway")


def _one(cursor: "psycopg.Cursor[tuple[Any, ...]]") -> tuple[Any, ...]:
    [found] = cursor.fetchall()
    return found


def _names(columns: Sequence[str]) -> Composed:
    return SQL(", ").join(map(Identifier, columns))


def _stored(value: Value) -> Value:
    return escaped(value) if isinstance(value, str) else value


@contextmanager
def talking() -> Iterator[None]:
    """Raises: LedgerUnavailable."""
    try:
        yield
    except psycopg.Error as error:
        if "unsupported startup parameter" in str(error):
            raise LedgerUnavailable(_POOLED) from error
        reason = Failure(error.sqlstate, _text(error)) if error.sqlstate else Lost(_text(error))
        raise unavailable("the database does not answer", reason) from error


def _text(error: psycopg.Error) -> str:
    """Neither the detail nor the whole message: they may quote values."""
    return error.diag.message_primary or str(error).strip() or "no reason is given"
