"""Makes or checks the schema of a database. Law: as in `storage.schema.open`; of the gateways that start at once one makes it,
while the others wait.

A migration takes the same lock.
"""

from gateway.ledger.errors import LedgerUnavailable
from storage.compiled import OLDEST, VERSION
from storage.postgres.compiled import SCHEMA
from storage.postgres.errors import Failure, Lost, unavailable
from storage.postgres.session import MARGIN, Session
from storage.postgres.settings import PostgresSettings
from storage.postgres.sql import FORMAT
from storage.postgres.text import Prepared, bound, plain
from storage.schema.version import refuse_unfinished, usable
from storage.statement import Row, Value

_WHAT = "the schema of the database cannot be read or made"

_OLDEST_SERVER = 130000
"""PostgreSQL 13: the first with `pg_current_snapshot`."""

_MIGRATION = 600
"""Seconds that another process is given for a migration."""

_WAIT = (plain("SET LOCAL lock_timeout = 0"), plain(f"SET LOCAL statement_timeout = '{_MIGRATION}s'"))
"""For it, which may take longer than other statements, and than these wait for a row."""

_LOCK = plain("SELECT pg_advisory_xact_lock(hashtext('a2a-gateway'), hashtext($1))", "schema")
_BEGIN, _COMMIT, _ROLLBACK = plain("BEGIN"), plain("COMMIT"), plain("ROLLBACK")
_ENCODING = plain("SELECT current_setting('server_encoding'), CAST(current_setting('server_version_num') AS integer)")
_SCHEMA = plain("SELECT current_schema()")
_SCHEMAS = plain("SELECT count(*) FROM pg_namespace WHERE nspname = $1", "schema")
_TABLES = plain("SELECT count(*) FROM pg_tables WHERE schemaname = $1", "schema")
_HAS_VERSION = plain("SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = 'ledger_format'", "schema")
_NEW_VERSION = plain("INSERT INTO alembic_version VALUES ($1)", "version")
_NEW_FORMAT = plain("INSERT INTO ledger_format VALUES ($1)", "oldest")


def prepare(session: Session, settings: PostgresSettings, *, pooled: bool, auto_migrate: bool) -> str:
    """The version of the schema, after making or migrating it. `pooled`: connections have no settings of their own.

    Raises: LedgerUnavailable when it has or gets another version.
    """
    schema = settings.database_schema
    try:
        [(encoding, server)] = session.one(bound(_ENCODING, {}))
        if encoding != "UTF8":
            raise LedgerUnavailable(f"the database has the encoding {encoding} and not UTF8")
        if server < _OLDEST_SERVER:
            raise LedgerUnavailable(f"PostgreSQL {server // 10000} is too old: 13 or newer is needed")
        _run(session, _BEGIN)
        try:
            for setting in _WAIT:
                _run(session, setting)
            with session.patient(_MIGRATION + MARGIN):
                _run(session, _LOCK, schema=schema)
            if auto_migrate and _run(session, _SCHEMAS, schema=schema) == [(0,)]:
                # Even with IF NOT EXISTS it wants the right to make one, and fails beside another one that makes it.
                _run(session, plain(f'CREATE SCHEMA "{schema}"'))
            _check_place(session, schema)
            fits = _fits(session, schema, auto_migrate=auto_migrate)
        finally:
            if session.usable:
                session.run([bound(_COMMIT, {})])
    except (Failure, Lost) as error:
        raise unavailable(_WHAT, error) from error
    if fits:
        return VERSION
    from storage.schema.migrate_postgres import migrate

    return migrate(settings, pooled=pooled, auto_migrate=auto_migrate)


def is_empty(session: Session, settings: PostgresSettings) -> bool:
    """Whether nothing was made in the schema yet, also where there is none. Raises: LedgerUnavailable."""
    try:
        return _run(session, _TABLES, schema=settings.database_schema) == [(0,)]
    except (Failure, Lost) as error:
        raise unavailable(_WHAT, error) from error


def check(found: list[Row]) -> None:
    """Raises: LedgerUnavailable."""
    refuse_unfinished(found)
    if len(found) != 1 or not usable(*found[0]):
        raise LedgerUnavailable(f"the schema has version {found!r} and not {VERSION!r}")


def _check_place(session: Session, schema: str) -> None:
    [(current,)] = _run(session, _SCHEMA)
    if current != schema:
        # Behind a pooler a connection has the settings of its user.
        raise LedgerUnavailable(
            f"the tables would be in the schema {current!r} and not in {schema!r}: behind a pooler it has to be the first "
            "of the user's (ALTER ROLE ... SET search_path)"
        )


def _fits(session: Session, schema: str, *, auto_migrate: bool) -> bool:
    """Makes the schema where there is none."""
    [(tables,)] = _run(session, _TABLES, schema=schema)
    if tables == 0:
        if not auto_migrate:
            raise LedgerUnavailable(f"the schema {schema!r} has no tables, and auto_migrate is off")
        for statement in SCHEMA:
            _run(session, plain(statement))
        _run(session, _NEW_VERSION, version=VERSION)
        _run(session, _NEW_FORMAT, oldest=OLDEST)
        return True
    [(known,)] = _run(session, _HAS_VERSION, schema=schema)
    found = _run(session, FORMAT) if known else []
    if len(found) != 1:
        raise LedgerUnavailable(
            f"the schema {schema!r} has tables of something else: name a schema of the gateway's own"
        )
    refuse_unfinished(found)
    return usable(*found[0])


def _run(session: Session, text: Prepared, **values: Value) -> list[Row]:
    return session.one(bound(text, values))
