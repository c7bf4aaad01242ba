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

INTERVAL = 0.005
"""Seconds from one change to the next while somebody wants them: those that come in between are joined, so that the log is
read at most so often, however much is committed. A stream of a task of another process is so much behind it, half of it on
average."""

REST = 0.05
"""The same while nobody wants changes, and for users whom nobody waits for by the millisecond."""

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
                        await self._rest()
            except LedgerUnavailable as error:
                log.warning("changes.not-heard", error=str(error))
            await asyncio.sleep(_RETRY)

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REST - INTERVAL):
                await self._wanted.wait()

    @contextmanager
    def told(self, tell: Callable[[Changed], None], *, rest: float = 0.0) -> Iterator[None]:
        """`tell` is called with each change, while the block lasts, and then not for `rest` seconds: what comes meanwhile is
        joined."""
        rested = _Rested(tell, rest)
        user = rested.tell if rest else tell
        self._users.append(user)
        try:
            yield
        finally:
            self._users.remove(user)
            rested.close()

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


@dataclass(slots=True, eq=False)
class _Rested:
    """Passes changes on, and rests behind each."""

    _tell: Callable[[Changed], None]
    _rest: float
    _joined: Changed = frozenset()
    _resting: asyncio.TimerHandle | None = None

    def tell(self, changed: Changed) -> None:
        self._joined = None if self._joined is None or changed is None else self._joined | changed
        if self._resting is None:
            self._pass_on()

    def _pass_on(self) -> None:
        joined, self._joined, self._resting = self._joined, frozenset(), None
        if joined is None or joined:
            self._resting = asyncio.get_running_loop().call_later(self._rest, self._pass_on)
            self._tell(joined)

    def close(self) -> None:
        if self._resting is not None:
            self._resting.cancel()


class Heard(asyncio.Event):
    """Something may have changed."""

    async def within(self, seconds: float | None) -> None:
        """Returns when it is set, or after so many seconds, and it is no longer set then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait()
        self.clear()
