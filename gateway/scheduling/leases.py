"""The leases of this process, renewed for as long as it runs. Law: a lease is renewed whatever else there is to do, and given
back when no turn here needs it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from gateway.engine.runtime import Runtime
from gateway.engine.turn_run import TurnRun
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.leases import Heartbeat, Release, Renew
from gateway.ledger.points import CommitPoint
from gateway.scheduling.queues import ThreadQueue, ThreadQueues

log = structlog.get_logger("gateway.scheduling.leases")


@dataclass(frozen=True, slots=True)
class LeaseTimes:
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
        """From the end of a renewal to the next. None after one that took long: what it stored late is old by then."""
        return max(0.0, self.round - took)


class LeaseUpkeep:
    """Of one process. `runs`: its turns, by task. `begin_next` continues a queue; `renewed` is called after each renewal."""

    def __init__(
        self,
        runtime: Runtime,
        times: LeaseTimes,
        queues: ThreadQueues,
        runs: Mapping[str, TurnRun],
        *,
        cancel: Callable[[TurnRun], None],
        begin_next: Callable[[ThreadQueue], None],
        renewed: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._ledger = runtime.ledger
        self._times = times
        self._queues = queues
        self._runs = runs
        self._cancel = cancel
        self._begin_next = begin_next
        self._renewed = renewed
        self._unused: set[str] = set()

    async def run(self) -> None:
        """Never returns."""
        took, monotonic = 0.0, self._runtime.clock.monotonic
        while True:
            await asyncio.sleep(self._times.rest(took))
            began = monotonic()
            try:
                await self.renew()
                if not self._times.rest(monotonic() - began):
                    await self.renew()
                await self._cancel_requested()
                await self._unpark()
            except LedgerUnavailable as error:
                log.warning("upkeep.skipped", error=str(error))
            took = monotonic() - began

    def heartbeat(self) -> Heartbeat:
        """Stored with a turn that has to wait: no other process takes it as long as this one lives."""
        return Heartbeat(self._runtime.holder, self._runtime.lease_until(), self._runtime.clock.now())

    def give_back(self, thread: str) -> None:
        """The last turn of the thread here has left the lease behind: the next renewal gives it back."""
        self._unused.add(thread)

    async def renew(self) -> None:
        """Gives unused leases back first: the turns that are left on their threads are settled next."""
        threads, holder = self._queues.threads, self._runtime.holder
        idle = self._unused.difference(threads)
        points: list[CommitPoint] = [Release(thread, holder) for thread in sorted(idle)]
        if threads:
            points.append(Renew(threads, holder, self._runtime.lease_until()))
        if any(not run.prepared for run in self._runs.values()):
            points.append(self.heartbeat())
        if points:
            await self._ledger.commit(*points)
        self._unused -= idle
        self._renewed()

    async def _cancel_requested(self) -> None:
        """Another process was asked to cancel a turn that runs here."""
        if self._runs:
            for task in await self._ledger.cancel_requests(self._runtime.holder):
                run = self._runs.get(task)
                if run is not None:
                    self._cancel(run)

    async def _unpark(self) -> None:
        """The paused turn that parked a queue may have ended in another process."""
        for queue in [queue for queue in self._queues if queue.parked]:
            if await self._ledger.waiting_task(queue.thread.id) is None:
                queue.parked = False
                self._begin_next(queue)
