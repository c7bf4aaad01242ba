"""The ledger on a database of PostgreSQL. Law: one thread writes, reads have connections of their own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from gateway.ledger.port import Ledger, LedgerFactory
from storage import compiled
from storage.postgres import schema
from storage.postgres.errors import Lost, unavailable
from storage.postgres.groups import GroupStore
from storage.postgres.readers import PostgresReaders
from storage.postgres.rows import open_rows
from storage.postgres.session import Session
from storage.postgres.settings import PostgresSettings
from storage.stored_ledger import StoredLedger
from storage.write.writer import Writer

_MARGIN = 5.0
"""Seconds of a trip beside those of the longest statement."""


class PostgresLedger(StoredLedger):
    def __init__(self, store: GroupStore, writer: Writer, readers: PostgresReaders) -> None:
        super().__init__(writer, readers)
        self._group_store = store
        self._found = readers

    async def ready(self) -> None:
        schema.check(await self._found.format())
        if self._group_store.in_trouble:
            # After a failed readiness check no requests arrive, so requests cannot show that the database has
            # recovered.
            await self._store([(compiled.PROBE, {})])


@asynccontextmanager
async def open_ledger(settings: PostgresSettings, auto_migrate: bool) -> AsyncGenerator[Ledger, None]:
    """The ledger in the database.

    The exit commits what was submitted. Raises: LedgerUnavailable when the database cannot be used or its schema has another
    version; `auto_migrate` allows to make it, and to migrate an older one.
    """
    connect = partial(Session, settings.conninfo().encode(), settings.statement_timeout + _MARGIN)
    await asyncio.to_thread(_prepare, connect, settings.database_schema, auto_migrate)
    store = GroupStore(connect)
    writer = Writer(store)
    readers = PostgresReaders(connect, settings.readers)
    try:
        await writer.open()
        yield PostgresLedger(store, writer, readers)
    finally:
        try:
            await writer.close()
        finally:
            await readers.close()


def _prepare(connect: "partial[Session]", database_schema: str, auto_migrate: bool) -> None:
    """Raises: LedgerUnavailable."""
    try:
        session = connect()
    except Lost as error:
        raise unavailable("the database does not open", error) from error
    try:
        schema.prepare(session, database_schema, auto_migrate=auto_migrate)
    finally:
        session.close()


factory = LedgerFactory(settings=PostgresSettings, open=open_ledger, rows=open_rows)
