"""Ledgers that are each wrong in one way, around one that is right."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from gateway.ledger.errors import Conflict
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Changed, Ledger
from gateway.testing.ledger_points import ADA, Opener
from storage.ledger import open_ledger
from storage.settings import SqliteSettings

Done = Callable[[Exception | None], None]
Wanted = Callable[[], Awaitable[object]]


class Around:
    """As right as the ledger inside. Of the same file, unless the kind has `of_its_own`."""

    of_its_own = False

    def __init__(self, inside: Ledger) -> None:
        self.inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inside, name)


def opener(kind: type[Around], folder: Path) -> Opener:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[Ledger, None]:
        name = secrets.token_hex(4) if kind.of_its_own else "ledger"
        async with open_ledger(SqliteSettings(url=f"sqlite:///{folder}/{name}.db"), True) as ledger:
            yield cast("Ledger", kind(ledger))

    return opened


class Forgets(Around):
    of_its_own = True


class CommitsPointByPoint(Around):
    async def commit(self, *points: CommitPoint) -> None:
        for point in points:
            await self.inside.commit(point)


class SwallowsConflicts(Around):
    async def commit(self, *points: CommitPoint) -> None:
        try:
            await self.inside.commit(*points)
        except Conflict:
            return


class IgnoresGenerations(Around):
    async def commit(self, *points: CommitPoint) -> None:
        try:
            await self.inside.commit(*points)
        except Conflict:
            thread = await self.inside.thread(getattr(points[0], "thread", ""))
            if thread is None or not hasattr(points[0], "generation"):
                raise
            await self.inside.commit(replace(points[0], generation=thread.generation))


class TakesTheCommitBack(Around):
    """When its caller is cancelled."""

    async def commit(self, *points: CommitPoint) -> None:
        await asyncio.sleep(0)
        await self.inside.commit(*points)


class ConfirmsBeforeItIsStored(Around):
    def submit(self, points: tuple[CommitPoint, ...], done: Done) -> None:
        done(None)
        self.inside.submit(points, lambda _: None)


class ConfirmsInAnotherOrder(Around):
    """Of two, the second one first."""

    held: Callable[[], None] | None = None

    def submit(self, points: tuple[CommitPoint, ...], done: Done) -> None:
        self.inside.submit(points, partial(self.confirm, done))

    def confirm(self, done: Done, outcome: Exception | None) -> None:
        held, self.held = self.held, None
        if held is None:
            self.held = partial(done, outcome)
        else:
            done(outcome)
            held()


class HasATimeOfItsOwn(Around):
    """Each process lives an hour after the one before it."""

    opened = 0

    def __init__(self, inside: Ledger) -> None:
        super().__init__(inside)
        type(self).opened += 1
        self.ahead = self.opened * 3_600_000

    def now(self) -> int:
        return self.inside.now() + self.ahead


class StandsStill(Around):
    def now(self) -> int:
        return 1_795_168_800_000


class HearsNothing(Around):
    async def changes(self, _wanted: object) -> AsyncGenerator[Changed, None]:
        yield None
        await asyncio.Event().wait()


class HearsOfOthers(Around):
    """Of tasks that have not changed."""

    async def changes(self, wanted: Wanted) -> AsyncGenerator[Changed, None]:
        first = True
        async with aclosing(self.inside.changes(wanted)) as changes:
            async for _ in changes:
                yield None if first else frozenset({"task-x"})
                first = False


class TellsOneReader(Around):
    """The second one hears nothing."""

    told = False

    async def changes(self, wanted: Wanted) -> AsyncGenerator[Changed, None]:
        alone, self.told = not self.told, True
        async with aclosing(self.inside.changes(wanted)) as changes:
            async for changed in changes:
                yield changed
                if not alone:
                    await asyncio.Event().wait()


class HearsOnceForEachCommit(Around):
    async def changes(self, _wanted: object) -> AsyncGenerator[Changed, None]:
        yield None
        for number in range(50):
            yield frozenset({f"task-{number}"})


class ShowsTasksOfOthers(Around):
    async def task(self, _caller: object, agent: str, task: str) -> object:
        return await self.inside.task(ADA, agent, task)


class ReadsTheWholeThread(Around):
    async def recent_history(self, thread: str, _turn: str, **_window: object) -> object:
        return await self.inside.history(thread, unsent_only=False)


class HasSecretsOfItsOwn(Around):
    async def secret(self, _name: str) -> bytes:
        return secrets.token_bytes(32)


class WakesNobody(Around):
    def on_backend_job(self, wake: Callable[[], None]) -> None:
        pass


class ImportsNothing(Around):
    async def commit(self, *points: CommitPoint) -> None:
        await self.inside.commit(*(point for point in points if type(point).__name__ != "Import"))
