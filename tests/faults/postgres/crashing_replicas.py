"""Replicas of which one is killed every now and then, and one stands still for longer than its lease, while their server is
restarted. Whatever ends is started again at once, as by a supervisor, also where it finds no server."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from tests.a2a_client import a2a_http
from tests.faults.crash_clients import Line
from tests.faults.crash_world import World
from tests.support.fork_server import Forked, ForkServer, fork_server
from tests.support.polling import interval
from tests.support.postgres import Server

REPLICAS = 3
LEASE_SECONDS = 2.0

_PATIENCE = 2 * LEASE_SECONDS
"""Seconds of silence after which clients try another replica."""

_STANDS_STILL = 3 * LEASE_SECONDS
"""Longer than the lease, and than the patience of clients."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Seconds from one fault to the next."""

    kill: float
    restart: float
    stop: float


@dataclass(slots=True, eq=False)
class Place:
    """Of one replica, which is another process after each death. `stopped`: it stands still, and is not to be killed."""

    gateway: Forked | None = None
    stopped: bool = False

    @property
    def alive(self) -> Forked | None:
        return None if self.gateway is None or self.gateway.ended.done() else self.gateway


@asynccontextmanager
async def crashing_replicas(
    world: World, server: Server, line: Line, chance: random.Random
) -> AsyncIterator["CrashingReplicas"]:
    """They serve, and whatever ends is started again, as long as the block lasts."""
    async with fork_server() as parent, AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        replicas = CrashingReplicas(parent, world, server, line, chance, stack)
        keepers = [group.create_task(replicas.keep(place)) for place in replicas.places]
        yield replicas
        for keeper in keepers:
            keeper.cancel()


@dataclass(slots=True)
class CrashingReplicas:
    parent: ForkServer
    world: World
    server: Server
    line: Line
    chance: random.Random
    stack: AsyncExitStack
    places: list[Place] = field(default_factory=lambda: [Place() for _ in range(REPLICAS)])
    starts: int = 0
    unborn: list[Forked] = field(default_factory=list)
    """Processes that were killed before they served."""
    serverless: list[Forked] = field(default_factory=list)
    """Those that ended by themselves before they served."""
    ends: Counter[int] = field(default_factory=Counter)
    """How those ended that had served."""
    restarts: int = 0
    stops: int = 0

    async def keep(self, place: Place) -> None:
        """Never returns."""
        while True:
            self.starts += 1
            place.gateway = gateway = await self.parent.fork(self.world.file)
            if await gateway.ready():
                self.line.open(gateway, await self.stack.enter_async_context(a2a_http(gateway.url.result(), _PATIENCE)))
            code = await asyncio.shield(gateway.ended)
            self.line.close(gateway)
            if gateway.url.done():
                self.ends[code] += 1
            elif code == -signal.SIGKILL:
                self.unborn.append(gateway)
            else:
                self.serverless.append(gateway)
                await interval()

    def __str__(self) -> str:
        return (
            f"{self.line.deaths} kills, {self.restarts} restarts of the server, {self.stops} stops;"
            f" {self.starts} starts, {len(self.unborn)} killed before they served, {len(self.serverless)} without a server"
        )

    async def trouble(self, seconds: float, schedule: Schedule) -> None:
        """All of it, for so long, and until each has happened, however slow the machine is. Then all replicas serve, or
        will."""
        async with asyncio.TaskGroup() as group:
            troubles = (self._kill(schedule.kill), self._restart(schedule.restart), self._stop(schedule.stop))
            tasks = [group.create_task(trouble) for trouble in troubles]
            await asyncio.sleep(seconds)
            while not min(self.line.deaths, self.restarts, self.stops):
                await interval()
            for task in tasks:
                task.cancel()

    async def be_patient(self) -> None:
        """From now on a request may take its time, when all replicas serve."""
        for place in self.places:
            while place.alive is None or not await place.alive.ready():
                await interval()
        for gateway in self.line.gateways:
            self.line.open(gateway, await self.stack.enter_async_context(a2a_http(gateway.url.result())))

    async def _kill(self, seconds: float) -> None:
        async for _ in _every(seconds):
            alive = [place.alive for place in self.places if place.alive is not None and not place.stopped]
            if alive:
                await self.line.kill(self.chance.choice(alive))

    async def _restart(self, seconds: float) -> None:
        async for _ in _every(seconds):
            # A server that was stopped is started, whatever ends meanwhile.
            await asyncio.shield(asyncio.to_thread(self._crash_server))
            self.restarts += 1

    def _crash_server(self) -> None:
        self.server.stop("immediate")
        self.server.start()

    async def _stop(self, seconds: float) -> None:
        async for _ in _every(seconds):
            while not (serving := [place for place in self.places if place.alive in self.line.gateways]):
                await interval()
            place = self.chance.choice(serving)
            gateway, place.stopped = place.gateway, True
            assert gateway is not None
            gateway.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(_STANDS_STILL)
                self.stops += 1
            finally:
                gateway.signal(signal.SIGCONT)
                place.stopped = False


async def _every(seconds: float) -> AsyncIterator[None]:
    time = asyncio.get_running_loop().time
    at = time()
    while True:
        at += seconds
        await asyncio.sleep(max(0.0, at - time()))
        yield
