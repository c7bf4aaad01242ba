"""The ledger on a database of PostgreSQL. Law: one thread writes, reads have connections of their own."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial

import structlog

from gateway.ledger.backlog import Sizes
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Changed, Ledger
from storage.postgres import schema, sql
from storage.postgres.errors import Failure, Lost, unavailable
from storage.postgres.groups import WHAT, GroupStore
from storage.postgres.listening import Listener
from storage.postgres.presence import entered
from storage.postgres.reach import VERDICT, Reach
from storage.postgres.readers import PostgresReaders
from storage.postgres.session import MARGIN, Connect, Session
from storage.postgres.settings import PostgresSettings
from storage.postgres.text import Call, bound
from storage.statement import Step
from storage.stored_ledger import StoredLedger
from storage.write.writer import Writer

_READY = 5.0
"""Seconds within which a database answers that is ready."""

_REFUSED_BY_A_POOLER = "unsupported startup parameter"

log = structlog.get_logger("storage.postgres.ledger")


class PostgresLedger(StoredLedger):
    def __init__(
        self, reach: Reach, store: GroupStore, writer: Writer, readers: PostgresReaders, listener: Listener
    ) -> None:
        super().__init__(writer, readers)
        self._reach = reach
        self._group_store = store
        self._found = readers
        self._listener = listener

    def now(self) -> int:
        return self._group_store.time.now()

    def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        return self._listener.changes(wanted)

    def hears(self) -> str:
        return "notifications" if self._listener.hears else "polling"

    async def sizes(self) -> Sizes:
        return {"database": await self._found.size()}

    async def ready(self) -> None:
        try:
            async with asyncio.timeout(_READY):
                found = await self._found.format()
        except TimeoutError:
            self._reach.suspect()
            raise LedgerUnavailable("the database did not answer in time") from None
        schema.check(found)
        if self._group_store.trouble.present:
            # After a failed readiness check no requests arrive, so requests cannot show that the database has
            # recovered.
            await self._probe()

    async def _store(self, steps: list[Step], kinds: Collection[type[CommitPoint]] = ()) -> None:
        try:
            # The writer may be at a group that the server has not answered yet.
            self._reach.refuse()
        except Lost as error:
            raise unavailable(WHAT, error) from error
        await super()._store(steps, kinds)


@asynccontextmanager
async def open_ledger(settings: PostgresSettings, auto_migrate: bool) -> AsyncGenerator[Ledger, None]:
    """The ledger in the database.

    The exit commits what was submitted. Raises: LedgerUnavailable when the database cannot be used or its schema has another
    version; `auto_migrate` allows to make it, and to migrate an older one.
    """
    connect, write, begin = await asyncio.to_thread(_prepare, settings, auto_migrate)
    reach = Reach(connect)
    read = partial(reach.connect, connect)
    store = GroupStore(
        partial(reach.connect, write), begin, read=read, check=reach.check, patience=settings.lock_timeout
    )
    writer = Writer(store)
    readers = PostgresReaders(store.reading, reach, settings.readers)
    try:
        await writer.open()
        yield PostgresLedger(reach, store, writer, readers, Listener(read, readers.version, readers.notify))
    finally:
        try:
            await writer.close()
        finally:
            reach.close()
            await readers.close()


def _prepare(settings: PostgresSettings, auto_migrate: bool) -> tuple[Connect, Connect, tuple[Call, ...]]:
    """How to connect, how to connect for groups, and what each of these begins with. Raises: LedgerUnavailable."""
    session, pooled = _reached(settings)
    try:
        schema.prepare(session, settings, pooled=pooled, auto_migrate=auto_migrate)
    finally:
        session.close()
    # Behind a pooler a connection has no settings of its own, and the next transaction may have another server's.
    begin = (bound(sql.LIMITS, dict(settings.limits_of_groups)),) if pooled else ()
    connects = _connect(settings, pooled=pooled), _connect(settings, pooled=pooled, writes=True)
    if pooled:
        return (*connects, begin)
    read, write = [partial(entered, connect, settings.database_schema) for connect in connects]
    return read, write, begin


def absence(settings: PostgresSettings) -> str | None:
    """As `LedgerFactory.absence`."""
    session, _ = _reached(settings)
    try:
        empty = schema.is_empty(session, settings)
    finally:
        session.close()
    return f"there are no tables in the schema {settings.database_schema!r}" if empty else None


def _reached(settings: PostgresSettings) -> tuple[Session, bool]:
    """As `_reach`. Raises: LedgerUnavailable."""
    try:
        return _reach(settings)
    except (Failure, Lost) as error:
        raise unavailable("the database does not open", error) from error


def _reach(settings: PostgresSettings) -> tuple[Session, bool]:
    """A connection, and whether a pooler stands before the server. Raises: Failure, Lost, LedgerUnavailable."""
    try:
        session = _connect(settings, pooled=False)()
        [(arrived,)] = session.one(bound(sql.IS_DIRECT, {}))
        if arrived:
            return session, False
        session.close()
    except Lost as error:
        if _REFUSED_BY_A_POOLER not in str(error):
            raise
    log.info("ledger.pooled", detail="statements are not prepared, and limits go with each transaction")
    return _connect(settings, pooled=True)(), True


def _connect(settings: PostgresSettings, *, pooled: bool, writes: bool = False) -> Connect:
    return partial(
        Session,
        settings.conninfo(options=not pooled, writes=writes),
        settings.connect_timeout,
        # What has waited for this long also waits until it is known why.
        settings.statement_timeout + MARGIN - VERDICT,
        prepares=not pooled,
    )
