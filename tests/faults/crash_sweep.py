"""Sweeps over the points at which a gateway may die: in run K its process dies at the K-th point that fits a pattern, for
K = 1, 2, 3, ... until a run ends untouched. The points are not listed anywhere.

Law: nothing here judges a run; its sweep does.
"""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import httpx2

from tests.a2a_client import a2a_http
from tests.faults.unfinished import expire_leases
from tests.support import stores
from tests.support.fork_server import ForkServer

_DATABASE = "gateway.db"


class Story(Protocol):
    """What the client of one run knows. `whole`: nothing broke."""

    whole: bool


S = TypeVar("S", bound=Story)


def configure(folder: Path, agent: str) -> Path:
    """Makes the folder of a gateway with one agent, of these settings."""
    folder.mkdir()
    file, url = folder / "gateway.yaml", stores.ledger_url(folder / _DATABASE)
    file.write_text(f"version: 1\nserver: {{port: 0}}\nstorage: {{url: '{url}'}}\nagents:\n  agent: {{{agent}}}\n")
    return file


@dataclass(frozen=True, slots=True)
class Run(Generic[S]):
    """The first process is dead and its leases have run out. `point`: the failpoint that killed it, if any."""

    sweep: "Sweep[S]"
    file: Path
    story: S
    point: str

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def database(self) -> Path:
        return self.folder / _DATABASE

    @asynccontextmanager
    async def next_process(self) -> AsyncIterator[httpx2.AsyncClient]:
        child = await self.sweep.server.serving(self.file, tools=self.sweep.tools, idempotent=self.sweep.idempotent)
        async with a2a_http(child.url.result()) as http:
            yield http
        await child.kill()


@dataclass(frozen=True, slots=True)
class Sweep(Generic[S]):
    """`live` is what the client does with the first process of each run, until it dies or all is said.

    `tools`, `idempotent`: as in `ForkServer.fork`.
    """

    server: ForkServer
    folder: Path
    agent: str
    begin: Callable[[], S]
    live: Callable[[httpx2.AsyncClient, S], Awaitable[None]]
    tools: bool = False
    idempotent: bool = False

    async def runs(self, pattern: str) -> AsyncIterator[Run[S]]:
        for number in count(1):
            run = await self._run(f"{pattern}:{number}")
            yield run
            stores.remove(self.folder)
            shutil.rmtree(self.folder)
            if run.story.whole:
                return

    async def _run(self, fail: str) -> Run[S]:
        file, story = configure(self.folder, self.agent), self.begin()
        child = await self.server.fork(file, fail, tools=self.tools, idempotent=self.idempotent)
        if await child.ready():
            async with a2a_http(child.url.result()) as http:
                await self.live(http, story)
        if story.whole:
            await child.kill()
        else:
            await child.dead()
        run = Run(self, file, story, child.point())
        # A process may reach its point after its client has seen everything: the run is whole all the same.
        assert story.whole or run.point
        expire_leases(run.database)
        return run
