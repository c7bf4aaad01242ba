"""The process that starts workers and ends them. Law: a start is whole or it fails; a worker that ends while the gateway serves
is started again; all workers drain at once, and none outlives the drain."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from gateway.app.workers.deaths import Deaths
from gateway.app.workers.messages import DRAIN, END, RELOAD, Failed
from gateway.app.workers.process import WorkerProcess
from gateway.foundation.tasks import first_of
from gateway.http.server import Signals

log = structlog.get_logger("gateway.app.workers.supervisor")

_CLOSING = 8.0
"""Seconds that a worker has to end when the grace is over: it closes its database, and code of the operator may have 3 s."""

Start = Callable[[int], Awaitable[WorkerProcess]]


class WorkersFailed(Exception):
    """The gateway cannot go on. `code` is the exit code of the worker that showed it, `text` what it said."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Supervisor:
    """Runs workers, numbered from 1 on."""

    def __init__(
        self,
        start: Start,
        count: int,
        grace: float,
        on_ready: Callable[[str], None],
        deaths: Deaths | None = None,
        closing: float = _CLOSING,
    ) -> None:
        """`on_ready` gets the URL of the gateway, once, when all workers serve. `grace` is that of a drain, in seconds, and
        `closing` what a worker has behind it."""
        self._start = start
        self._count = count
        self._grace = grace
        self._on_ready = on_ready
        self._closing = closing
        self._deaths = deaths or Deaths(count)
        self._workers: dict[int, WorkerProcess] = {}
        self._serving: dict[int, float] = {}
        self._ready = False
        self._over = asyncio.Event()
        self._failure: WorkersFailed | None = None

    async def run(self) -> bool:
        """Until SIGTERM or SIGINT, and the end of all workers. Whether all of them had served.

        Raises: WorkersFailed when a worker cannot start, and when none serves and they end again and again.
        """
        signals = Signals()
        with signals.watched(reloads=True):
            async with asyncio.TaskGroup() as group:
                keeping = {group.create_task(self._keep(number)) for number in range(1, self._count + 1)}
                reloading = group.create_task(self._reload(signals.reload))
                await first_of(signals.first.wait(), self._over.wait())
                self._over.set()
                await self._end(keeping, signals.second)
                reloading.cancel()
        if self._failure is not None:
            raise self._failure
        return self._ready

    async def _keep(self, number: int) -> None:
        """Starts a worker, again and again, until all is over."""
        while not self._over.is_set():
            served, end = await self._run(number)
            if self._over.is_set():
                if end.code != 0 and self._failure is None:
                    log.error("worker.ended", worker=number, detail=end.text)
                return
            wait = self._deaths.wait(number, served, others_serve=bool(self._serving)) if self._ready else None
            if wait is None:
                self._failure = WorkersFailed(end.code if end.code > 0 else 1, end.text)
                self._over.set()
                return
            log.error("worker.ended", worker=number, detail=end.text, started_again_in=wait)
            await first_of(asyncio.sleep(wait), self._over.wait())

    async def _run(self, number: int) -> tuple[float, Failed]:
        """One process from its start to its end. The seconds for which it has served, and why it ended."""
        try:
            worker = await self._start(number)
        except OSError as error:
            return 0.0, Failed(1, f"worker {number} of the gateway cannot be started: {error.strerror}")
        self._workers[number] = worker
        if self._over.is_set():
            self._drain(number, worker)
        code = await worker.ended(partial(self._serves, number))
        del self._workers[number]
        since = self._serving.pop(number, None)
        served = 0.0 if since is None else asyncio.get_running_loop().time() - since
        when = "before it served" if since is None else f"after {served:.0f} s of serving"
        return served, worker.failure or Failed(code, f"worker {number} of the gateway {_how(code)} {when}")

    def _serves(self, number: int, url: str) -> None:
        self._serving[number] = asyncio.get_running_loop().time()
        log.info("worker.serves", worker=number, pid=self._workers[number].pid)
        if len(self._serving) == self._count and not self._ready and not self._over.is_set():
            self._ready = True
            self._on_ready(url)

    async def _reload(self, asked: asyncio.Event) -> None:
        """Never returns."""
        while True:
            await asked.wait()
            asked.clear()
            self._order(RELOAD)

    async def _end(self, keeping: set[asyncio.Task[None]], now: asyncio.Event) -> None:
        """Returns when every worker has ended."""
        for number, worker in self._workers.items():
            self._drain(number, worker)
        if self._failure is None:
            # A worker ends its drain by itself; the bound is for one that does not.
            await first_of(now.wait(), asyncio.sleep(self._grace), _all_of(keeping))
        self._order(END)
        await first_of(asyncio.sleep(self._closing), _all_of(keeping))
        for number, worker in self._workers.items():
            log.error("worker.killed", worker=number, pid=worker.pid, detail="it has not ended its drain")
            worker.signal(signal.SIGKILL)

    def _drain(self, number: int, worker: WorkerProcess) -> None:
        worker.order(DRAIN)
        if number not in self._serving:
            # It may wait for a database; before it serves, the signal ends it.
            worker.signal(signal.SIGTERM)

    def _order(self, order: bytes) -> None:
        for worker in self._workers.values():
            worker.order(order)


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


async def _all_of(tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
