"""What the ledger owes to others, read for those who watch the process. Law: the cost does not depend on how often somebody
looks, and a ledger that does not answer changes nothing but the numbers, which are left out."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from gateway.ledger.backlog import Backlog, Sizes
from gateway.ledger.errors import skip_failures
from gateway.ledger.port import BacklogReads
from gateway.ports.observer import Labels, Observer

log = structlog.get_logger("gateway.maintenance.backlog_watch")

_INTERVAL = 15.0
"""Seconds between two reads."""


@dataclass(slots=True)
class BacklogWatch:
    """One instance per process."""

    ledger: BacklogReads
    _latest: Backlog | None = None
    _sizes: Sizes | None = None

    def shown_to(self, observer: Observer) -> None:
        observer.watch("ledger_up", "0 where the ledger could not be read at the latest look.", self._up)
        observer.watch("ledger_bytes", "Size of the ledger.", self._bytes, "file")
        observer.watch("deletions_due", "Conversations that backends have still to delete.", self._deletions, "state")
        observer.watch("pushes_owed", "Push configurations with something to deliver.", self._owed)
        observer.watch("push_receivers_failing", "Receivers that have not taken the latest post.", self._failing)
        observer.watch("turns_put_aside", "Turns that no process tries any more.", self._aside)

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self.look()
            await asyncio.sleep(_INTERVAL)

    async def look(self) -> None:
        self._latest = self._sizes = None
        with skip_failures(log, "backlog.skipped"):
            self._sizes = await self.ledger.sizes()
            self._latest = await self.ledger.backlog()

    def _up(self) -> Iterator[tuple[Labels, float]]:
        yield (), float(self._latest is not None)

    def _bytes(self) -> Iterator[tuple[Labels, float]]:
        for name, size in (self._sizes or {}).items():
            yield (name,), size

    def _deletions(self) -> Iterator[tuple[Labels, float]]:
        if self._latest is not None:
            yield ("due",), self._latest.deletions
            yield ("given_up",), self._latest.given_up

    def _owed(self) -> Iterator[tuple[Labels, float]]:
        if self._latest is not None:
            yield (), self._latest.owed

    def _failing(self) -> Iterator[tuple[Labels, float]]:
        if self._latest is not None:
            yield (), self._latest.failing

    def _aside(self) -> Iterator[tuple[Labels, float]]:
        if self._latest is not None:
            yield (), self._latest.aside
