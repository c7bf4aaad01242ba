"""The queues of this process, by thread, and the upkeep of their leases.

Law: a queue keeps the order of its turns, and the ledger orders the queues of one thread, of which one turn at a time has the
lease. A lease is renewed whatever else there is to do, and given back when no turn here needs it.

A thread has several queues when turns of a dead process were taken over that precede turns which wait here already.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import structlog

from gateway.engine.changes import REST, Heard
from gateway.engine.runtime import Runtime
from gateway.engine.turn_run import ThreadQueue, TurnRun
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.leases import Release, Renew
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Changed

log = structlog.get_logger("gateway.scheduling.leases")


class LeaseTimes(msgspec.Struct, frozen=True):
    """Seconds. A lease is renewed `renewals` times before it would run out.

    `start`: the longest time, before anything is served, for ending what dead processes left; the rest ends during service.
    """

    length: float = 5.0
    renewals: int = 3
    start: float = 1.0

    @property
    def round(self) -> float:
        return self.length / self.renewals

    def rest(self, took: float) -> float:
        """The seconds from the end of a renewal to the next renewal. They are 0 after a renewal that took long, because
        the time that it stored is then already old."""
        return max(0.0, self.round - took)


@dataclass(slots=True)
class ThreadQueues:
    """The first queue of a thread gets its new turns."""

    _of: dict[str, list[ThreadQueue]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ThreadQueue]:
        return (queue for queues in self._of.values() for queue in queues)

    @property
    def threads(self) -> tuple[str, ...]:
        return tuple(self._of)

    def of(self, thread: str) -> tuple[ThreadQueue, ...]:
        return tuple(self._of.get(thread, ()))

    def first(self, thread: str) -> ThreadQueue | None:
        queues = self._of.get(thread)
        return queues[0] if queues else None

    def add(self, queue: ThreadQueue) -> ThreadQueue:
        queue.siblings = self._of.setdefault(queue.thread.id, [])
        queue.siblings.append(queue)
        return queue

    def remove(self, queue: ThreadQueue) -> bool:
        """True if it was the last queue of its thread."""
        queue.siblings.remove(queue)
        if queue.siblings:
            return False
        del self._of[queue.thread.id]
        return True


@dataclass(slots=True)
class LeaseUpkeep:
    """Renews the leases of one process. `runs` are the turns of the process, by task. `cancel` ends a turn;
    `begin_next` continues a queue; `renewed` is called after each renewal."""

    runtime: Runtime
    times: LeaseTimes
    queues: ThreadQueues
    runs: Mapping[str, TurnRun]
    cancel: Callable[[TurnRun], None]
    begin_next: Callable[[ThreadQueue], None]
    renewed: Callable[[], None]
    _heard: Heard = field(default_factory=Heard)
    _changed: set[str] = field(default_factory=set)
    unused: set[str] = field(default_factory=set)
    """Threads of which no turn is here any more: the next renewal gives their leases back."""

    def give_back(self, thread: str) -> None:
        """Its last turn has ended and did not release the lease. That is done before the end is told, because the process
        may stop then; where it fails, with the next renewal."""

        def stored(error: Exception | None) -> None:
            if error is not None:
                self.unused.add(thread)

        self.runtime.ledger.submit((Release(thread, self.runtime.holder),), stored)

    async def run(self) -> None:
        """Never returns."""
        took, monotonic = 0.0, self.runtime.clock.monotonic
        while True:
            await asyncio.sleep(self.times.rest(took))
            began = monotonic()
            try:
                await self.renew()
                if not self.times.rest(monotonic() - began):
                    await self.renew()
                await self._cancel_requested()
                await self._unpark([queue for queue in self.queues if queue.parked is not None])
            except LedgerUnavailable as error:
                log.warning("upkeep.skipped", error=str(error))
            took = monotonic() - began

    async def listen(self) -> None:
        """Never returns. Sees to what another process may ask of the turns here as soon as it is heard of; what is not heard of
        waits for the next renewal."""
        with self.runtime.changes.told(self._hear, rest=REST):
            while True:
                await self._heard.within(None)
                changed, self._changed = self._changed, set()
                try:
                    await self._cancel_requested()
                    await self._unpark([queue for queue in self.queues if queue.parked in changed])
                except LedgerUnavailable as error:
                    log.warning("upkeep.skipped", error=str(error))

    def _hear(self, changed: Changed) -> None:
        """A queue is not looked at for a change that names no task: there may be many of them."""
        if changed is None:
            if self.runs:
                self._heard.set()
            return
        of_queues = changed.intersection(queue.parked for queue in self.queues if queue.parked is not None)
        if of_queues or not changed.isdisjoint(self.runs):
            self._changed |= of_queues
            self._heard.set()

    async def renew(self) -> None:
        """Gives unused leases back first: the turns that are left on their threads are settled next."""
        threads, holder = self.queues.threads, self.runtime.holder
        idle = sorted(self.unused.difference(threads))
        self.unused.difference_update(idle)
        for thread in idle:
            # Not with the renewals: a thread whose row somebody holds would keep them waiting.
            self.give_back(thread)
        points: list[CommitPoint] = []
        if threads:
            points.append(Renew(threads, holder, self.runtime.lease_until()))
        if any(not run.prepared for run in self.runs.values()):
            points.append(self.runtime.heartbeat())
        if points:
            await self.runtime.ledger.commit(*points)
        self.renewed()

    async def _cancel_requested(self) -> None:
        """Another process was asked to cancel a turn that runs here."""
        if self.runs:
            for task in await self.runtime.ledger.cancel_requests(self.runtime.holder):
                run = self.runs.get(task)
                if run is not None:
                    self.cancel(run)

    async def _unpark(self, queues: list[ThreadQueue]) -> None:
        """The paused turns that parked these queues may have ended in another process."""
        for queue in queues:
            if await self.runtime.ledger.waiting_task(queue.thread.id) is None:
                queue.parked = None
                self.begin_next(queue)
