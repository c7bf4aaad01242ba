"""The ledger on one SQLite file. Law: one thread writes, reads have connections of their own."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path

from gateway.foundation.clock import Clock
from gateway.ledger.backlog import Sizes
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Changed, Ledger, LedgerFactory
from gateway.ledger.rows import LedgerRows
from storage import compiled
from storage.read.pool import OLDEST, Readers
from storage.rows import open_rows
from storage.schema import access, backup
from storage.schema.open import prepare
from storage.schema.version import usable
from storage.settings import SqliteSettings
from storage.stored_ledger import StoredLedger
from storage.write.file_store import FileStore
from storage.write.writer import Writer

_MACHINE = Clock()


class SqliteLedger(StoredLedger):
    def __init__(self, path: Path, store: FileStore, writer: Writer, readers: Readers, version: str) -> None:
        super().__init__(writer, readers)
        self._path = path
        self._file_store = store
        self._found = readers
        self._version = version

    def now(self) -> int:
        # All processes on one file are on one machine, whose clock may be set: the gateway detects that.
        return _MACHINE.now()

    def changes(self, wanted: Callable[[], Awaitable[object]]) -> AsyncGenerator[Changed, None]:
        return self._found.changes(wanted)

    def hears(self) -> None:
        return None

    async def sizes(self) -> Sizes:
        return await asyncio.to_thread(self._file_sizes)

    def _file_sizes(self) -> Sizes:
        """A file that is not there has no bytes."""
        found = {}
        for name, path in (("database", self._path), ("wal", Path(f"{self._path}-wal"))):
            with suppress(FileNotFoundError):
                found[name] = path.stat().st_size
        return found

    async def ready(self) -> None:
        rows, [[oldest]] = await self._readers.fetch_all((compiled.SCHEMA_VERSION, {}), (OLDEST, {}))
        if len(rows) != 1 or not usable(rows[0][0], oldest):
            raise LedgerUnavailable(f"the schema has version {rows!r} and not {self._version!r}")
        if await asyncio.to_thread(self._file_store.file.gone_now):
            raise self._file_store.file.error()
        if self._file_store.trouble.present:
            # After a failed readiness check no requests arrive, so requests cannot show that the database has
            # recovered.
            await self._probe()


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
    store = FileStore(str(path), busy_timeout_ms)
    writer, readers = Writer(store), Readers()
    try:
        await writer.open()
        await readers.open(str(path), busy_timeout_ms)
        yield SqliteLedger(path, store, writer, readers, version)
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
    why = access.obstacle(settings.path)
    return None if why is None else f"{str(settings.path)!r} cannot be opened: {why}"


def absence(settings: SqliteSettings) -> str | None:
    """As `LedgerFactory.absence`."""
    return access.absence(settings.path)


def rows(settings: SqliteSettings, make: bool) -> AbstractContextManager[LedgerRows]:
    """As `LedgerFactory.rows`."""
    return open_rows(settings.path, make)


factory = LedgerFactory(
    settings=SqliteSettings,
    open=open_ledger,
    back_up=back_up,
    restore=restore,
    problem=problem,
    absence=absence,
    rows=rows,
)
