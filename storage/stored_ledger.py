"""The Ledger port over one writer and readers. Law: knows no dialect."""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TYPE_CHECKING

from gateway.ledger.documents import Import
from gateway.ledger.points import QUEUES_BACKEND_JOBS, CommitPoint
from gateway.ledger.tasks import Append, Close
from gateway.ledger.turns import Accept, Decide
from gateway.ports.observer import Observer
from storage import compiled
from storage.read.queries import Readers
from storage.read.reads import Reads
from storage.statement import Step
from storage.worker import resolve
from storage.write.units import unit
from storage.write.writer import Done, Writer

if TYPE_CHECKING:
    from gateway.ledger.admin.reads import AdminReads

_PATIENCE = 15.0
"""Seconds that the commits of a running turn wait for a locked database; a caller's request fails after one timeout."""

_PROBE = 65536
"""Bytes: more than is free in pages that are there."""

_REQUESTS = frozenset({Accept, Close, Decide})
_EVENTS = frozenset({Append})


class StoredLedger(Reads, ABC):
    """All of the port but `ready`, and what a store knows by itself."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        super().__init__(readers)
        self._writer = writer
        self._wake_jobs: list[Callable[[], None]] = []

    @abstractmethod
    def now(self) -> int:
        """As in Ledger."""

    @cached_property
    def admin(self) -> "AdminReads":
        from storage.read.admin.queries import AdminQueries  # only where there are pages

        return AdminQueries(self._readers, self.now)

    def on_backend_job(self, wake: Callable[[], None]) -> None:
        self._wake_jobs.append(wake)

    def observe(self, observer: Observer) -> None:
        self._writer.observer = observer
        observer.watch("commit_queue_units", "Units that wait to be written.", lambda: [((), self._writer.waiting)])

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

    async def _probe(self) -> None:
        """Raises: LedgerUnavailable where the store cannot be written to, or has no room."""
        # Of bytes that cannot be compressed, so that it needs pages of its own; and in two transactions, as in one it would
        # leave none to be written.
        await self._store([(compiled.PROBE, {"value": secrets.token_bytes(_PROBE)})])
        await self._store([(compiled.DELETE_PROBE, {})])

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
