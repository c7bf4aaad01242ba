"""The Ledger port on one SQLite file. Law: one thread writes, reads have connections of their own."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from gateway.foundation.clock import Clock
from gateway.ledger.documents import Import
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.points import QUEUES_BACKEND_JOBS, CommitPoint
from gateway.ledger.port import Changed, Ledger, LedgerFactory
from gateway.ledger.tasks import Append, Close
from gateway.ledger.turns import Accept, Decide
from storage import compiled
from storage.connection import OLDEST_USER
from storage.read.pool import Readers
from storage.read.reads import Reads
from storage.schema import backup
from storage.schema.access import obstacle
from storage.schema.open import prepare, usable
from storage.settings import SqliteSettings
from storage.statement import Step
from storage.worker import resolve
from storage.write.units import unit
from storage.write.writer import Done, Writer

_PATIENCE = 15.0
"""Seconds that the commits of a running turn wait for a locked database; a caller's request fails after one timeout."""

_MACHINE = Clock()

_REQUESTS = frozenset({Accept, Close, Decide})
_EVENTS = frozenset({Append})


class SqliteLedger(Reads):
    def __init__(self, writer: Writer, readers: Readers, version: str) -> None:
        super().__init__(readers)
        self._writer = writer
        self._version = version
        self._wake_jobs: list[Callable[[], None]] = []

    def now(self) -> int:
        # All processes on one file are on one machine, whose clock may be set: the gateway detects that.
        return _MACHINE.now()

    def on_backend_job(self, wake: Callable[[], None]) -> None:
        self._wake_jobs.append(wake)

    async def commit(self, *points: CommitPoint) -> None:
        # A whole context would occupy the event loop for too long.
        large = any(isinstance(point, Import) for point in points)
        steps = await asyncio.to_thread(unit, points) if large else unit(points)
        await self._store(steps, {*map(type, points)})

    def submit(self, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]) -> None:
        kinds = {*map(type, points)}
        patience = _PATIENCE if kinds.isdisjoint(_REQUESTS) else 0.0
        # Events may wait for a larger group, even while a caller reads the task; other points of a turn may not.
        self._writer.submit(unit(points), self._followed(done, kinds), patience, urgent=kinds != _EVENTS)

    async def secret(self, name: str) -> bytes:
        await self._store([(compiled.NEW_SECRET, {"name": name, "value": secrets.token_bytes(32)})])
        rows = await self._readers.fetch(compiled.SECRET, {"name": name})
        value: bytes = rows[0][0]
        return value

    def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        return self._readers.changes(wanted)

    def hears(self) -> None:
        return None

    async def ready(self) -> None:
        rows = await self._readers.fetch(compiled.SCHEMA_VERSION, {})
        [[oldest]] = await self._readers.fetch(OLDEST_USER, {})
        if len(rows) != 1 or not usable(rows[0][0], oldest):
            raise LedgerUnavailable(f"the schema has version {rows!r} and not {self._version!r}")
        if await asyncio.to_thread(self._writer.file.gone_now):
            raise self._writer.file.error()
        if self._writer.in_trouble:
            # After a failed readiness check no requests arrive, so requests cannot show that the database has
            # recovered.
            await self._store([(compiled.PROBE, {})])

    async def _store(self, steps: list[Step], kinds: Collection[type[CommitPoint]] = ()) -> None:
        # A cancelled caller does not cancel the commit.
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.submit(steps, self._followed(partial(resolve, stored), kinds))
        await stored

    def _followed(self, done: Done, kinds: Collection[type[CommitPoint]]) -> Done:
        """Wakes the jobs at backends as well, where points of these kinds may have queued one."""
        if QUEUES_BACKEND_JOBS.isdisjoint(kinds):
            return done

        def stored(error: Exception | None) -> None:
            done(error)
            if error is None:
                for wake in self._wake_jobs:
                    wake()

        return stored


@asynccontextmanager
async def open_ledger(
    settings: SqliteSettings, auto_migrate: bool, *, busy_timeout_ms: int = 5000
) -> AsyncGenerator[Ledger, None]:
    """The ledger in the file, which is made where it is missing.

    The exit commits what was submitted. Raises: LedgerUnavailable when the file cannot be used or its schema has another
    version; `auto_migrate` allows to migrate an older one.
    """
    path = settings.path
    why = problem(settings)
    if why is not None:
        raise LedgerUnavailable(why)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            # Only the owner reads conversations and keys: SQLite gives the files of the log the rights of this one.
            path.touch(mode=0o600)
    except OSError as error:
        raise LedgerUnavailable(f"{str(path)!r} cannot be made: {error}") from error
    version = await asyncio.to_thread(prepare, path, busy_timeout_ms, auto_migrate=auto_migrate)
    writer, readers = Writer(str(path), busy_timeout_ms), Readers()
    try:
        await writer.open()
        await readers.open(str(path), busy_timeout_ms)
        yield SqliteLedger(writer, readers, version)
    finally:
        try:
            await writer.close()
        finally:
            await readers.close()


def back_up(settings: SqliteSettings, target: Path) -> None:
    """Raises: as `LedgerFactory.back_up`."""
    backup.back_up(settings.path, target)


def restore(source: Path, settings: SqliteSettings, replace: bool) -> Path | None:
    """Raises: as `LedgerFactory.restore`."""
    return backup.restore(source, settings.path, replace=replace)


def problem(settings: SqliteSettings) -> str | None:
    """As `LedgerFactory.problem`."""
    why = obstacle(settings.path)
    return None if why is None else f"{str(settings.path)!r} cannot be opened: {why}"


factory = LedgerFactory(settings=SqliteSettings, open=open_ledger, back_up=back_up, restore=restore, problem=problem)
