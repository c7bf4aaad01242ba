"""What a process hears of commits, its own and those of other processes. Law: the rows are the truth, and a change is a hint
that may be lost or come twice, so each of its users also looks without one now and then."""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field

import structlog

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Changed, EventReads

log = structlog.get_logger("gateway.engine.changes")

INTERVAL = 0.05
"""Seconds from one change to the next: those that come in between are joined, and their users read the database at most so
often, however much is committed."""

_RETRY = 0.5
"""Seconds until a ledger is heard again that could not be read."""


@dataclass(slots=True, eq=False)
class Changes:
    """One instance per process reads the changes of its ledger. `run` belongs into a task group."""

    _ledger: EventReads
    _users: list[Callable[[Changed], None]] = field(default_factory=list)
    _wanting: set[Hashable] = field(default_factory=set)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Never returns."""
        while True:
            try:
                async with aclosing(self._ledger.changes(self._wanted.wait)) as changes:
                    async for changed in changes:
                        for tell in tuple(self._users):
                            tell(changed)
                        await asyncio.sleep(INTERVAL)
            except LedgerUnavailable as error:
                log.warning("changes.not-heard", error=str(error))
            await asyncio.sleep(_RETRY)

    @contextmanager
    def told(self, tell: Callable[[Changed], None]) -> Iterator[None]:
        """`tell` is called with each change, while the block lasts."""
        self._users.append(tell)
        try:
            yield
        finally:
            self._users.remove(tell)

    @contextmanager
    def heard(self, tasks: Collection[str], *, wanted: bool) -> Iterator["Heard"]:
        """What is set by each change that names one of these tasks, while the block lasts; where changes are `wanted`, also by
        those that name none."""
        heard = Heard()

        def tell(changed: Changed) -> None:
            if wanted if changed is None else not changed.isdisjoint(tasks):
                heard.set()

        self.want(heard, wanted)
        try:
            with self.told(tell):
                yield heard
        finally:
            self.want(heard, False)

    def want(self, user: Hashable, wants: bool) -> None:
        """Whether this user cannot do without: as long as nobody wants changes, a ledger that has to ask for them does not."""
        if wants:
            self._wanting.add(user)
            self._wanted.set()
        else:
            self._wanting.discard(user)
            if not self._wanting:
                self._wanted.clear()


class Heard(asyncio.Event):
    """Something may have changed."""

    async def within(self, seconds: float | None) -> None:
        """Returns when it is set, or after so many seconds, and it is no longer set then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        self.clear()
