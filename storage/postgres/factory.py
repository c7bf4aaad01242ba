"""The kind of ledger that a URL of PostgreSQL names. Law: psycopg, an extra, is imported when such a ledger is used, not when
its kind is looked up."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path

from gateway.ledger.port import Ledger, LedgerFactory
from gateway.ledger.rows import LedgerRows
from storage.postgres.settings import PostgresSettings


def _open(settings: PostgresSettings, auto_migrate: bool) -> AbstractAsyncContextManager[Ledger]:
    from storage.postgres.ledger import open_ledger

    return open_ledger(settings, auto_migrate)


def _absence(settings: PostgresSettings) -> str | None:
    from storage.postgres.ledger import absence

    return absence(settings)


def _rows(settings: PostgresSettings, make: bool) -> AbstractContextManager[LedgerRows]:
    from storage.postgres.rows import open_rows

    return open_rows(settings, make)


def _back_up(settings: PostgresSettings, target: Path) -> None:
    from storage.postgres.backup import back_up

    back_up(settings, target)


def _restore(source: Path, settings: PostgresSettings, replace: bool) -> Path | str | None:
    from storage.postgres.backup import restore

    return restore(source, settings, replace)


factory = LedgerFactory(
    settings=PostgresSettings,
    open=_open,
    back_up=_back_up,
    restore=_restore,
    scales_out=True,
    absence=_absence,
    rows=_rows,
    part=lambda settings: settings.part,
)
