"""The connections that only read. Law: a read sees what was committed before it began."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.tasks import PageLimits, TaskPage
from storage.postgres import sql
from storage.postgres.errors import Lost, ReadOnly, unavailable
from storage.postgres.pages import task_page
from storage.postgres.reach import Reach
from storage.postgres.reader import WHAT, Reader
from storage.postgres.session import Session
from storage.postgres.text import Call, bound
from storage.read.queries import Asked
from storage.statement import Query, Row


class PostgresReaders:
    """The `Readers` of the ledger: one connection for short reads, and some for reads that may be long."""

    def __init__(self, connect: Callable[[], Session], reach: Reach, long: int) -> None:
        """`long` is the number of connections for long reads. `connect` raises Lost. Raises: LedgerUnavailable."""
        self._reach = reach
        self._short = Reader(connect, reach.check, "ledger-reader")
        self._long = [Reader(connect, reach.check, f"ledger-long-reader-{number}") for number in range(long)]
        self._idle: asyncio.Queue[Reader] = asyncio.LifoQueue()
        """The one that read last is the next: the others connect when they are needed."""
        for reader in self._long:
            self._idle.put_nowait(reader)
        self._pages = asyncio.Semaphore(max(1, long - 1))
        """Lists read for longest, and leave a connection to streams, deliveries and turns that are taken over."""
        self._closed = False

    async def lookup(self, query: Query, values: dict[str, Any]) -> list[Row]:
        return await self.fetch(query, values)

    async def fetch(self, query: Query, values: dict[str, Any]) -> list[Row]:
        [rows] = await self.fetch_all((query, values))
        return rows

    async def fetch_all(self, *asked: Asked) -> list[list[Row]]:
        self._refuse()
        return await self._short.fetch(*[_call(query, values) for query, values in asked])

    async def scan(self, query: Query, values: dict[str, Any]) -> list[Row]:
        [rows] = await self.scan_all((query, values))
        return rows

    async def scan_all(self, *asked: Asked) -> list[list[Row]]:
        async with self._borrowed() as reader:
            return await reader.fetch(*[_call(query, values) for query, values in asked])

    async def log_page(self, values: dict[str, Any]) -> list[Row]:
        async with self._borrowed() as reader:
            [rows] = await reader.fetch(bound(sql.LOG_PAGE, values))
        return rows

    async def page(self, filters: tuple[bool, ...], values: dict[str, Any], limits: PageLimits) -> TaskPage:
        async with self._pages, self._borrowed() as reader:
            return await reader.run(partial(task_page, filters, values, limits))

    async def version(self) -> int:
        self._refuse()
        [[(number,)]] = await self._short.fetch(bound(sql.VERSION, {}))
        return int(number)

    async def size(self) -> int:
        """Bytes of the database."""
        self._refuse()
        [[(size,)]] = await self._short.fetch(bound(sql.SIZE, {}))
        return int(size)

    async def notify(self, payload: str) -> None:
        self._refuse()
        await self._short.fetch(bound(sql.NOTIFY, {"payload": payload}))

    async def format(self) -> list[Row]:
        """The version of the schema, and the oldest version of the code that may use it. Raises: LedgerUnavailable, also where
        the server takes no writes."""
        self._refuse()
        return await self._short.run(_format)

    @asynccontextmanager
    async def _borrowed(self) -> AsyncGenerator[Reader, None]:
        self._refuse()
        reader = await self._idle.get()
        try:
            yield reader
        finally:
            self._idle.put_nowait(reader)

    def _refuse(self) -> None:
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        try:
            # Those who wait for a connection wait for what is asked on it.
            self._reach.refuse()
        except Lost as error:
            raise unavailable(WHAT, error) from error

    async def close(self) -> None:
        """Waits for the reads under way."""
        if not self._closed:
            self._closed = True
            for reader in (self._short, *self._long):
                await reader.close()


def _format(session: Session) -> list[Row]:
    """Raises: Failure, Lost."""
    [(read_only,)] = session.one(bound(sql.READ_ONLY, {}))
    if read_only:
        # What an operator changes counts for new connections.
        session.close()
        raise ReadOnly
    return session.one(bound(sql.FORMAT, {}))


def _call(query: Query, values: dict[str, Any]) -> Call:
    return bound(sql.PREPARED[query.name], values)
