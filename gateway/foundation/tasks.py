"""What is on its way to become a turn of this process: read, checked, stored, and not yet begun. Law: who waits for the
last of it does not miss one, however long it takes.

The end of the process as everybody hears of it. Law: it comes once; whoever listens is told without a task of his own.

Ends a task that runs what others wrote. Law: it gets a moment, and then nobody waits for it any more, not even the end of
the process.

Exceptions that are over. Law: who has made something of one lets go of what it holds.

The frames of a traceback hold all that their functions knew, a request of megabytes among it; where a variable of one holds
the exception, as asyncio and HTTP clients have it, they would all stay until the garbage collector looks, which counts objects
and not bytes.

A limit on how long one wait may last, for what waits again and again. Law: one timer, however many waits there are.

A timer for each wait (`asyncio.timeout`, or that of aiohttp) takes 5 % of the CPU of a delta that comes alone.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Inside:
    """Counts those that are in its `with` block."""

    __slots__ = ("_none", "count")

    def __init__(self) -> None:
        self.count = 0
        self._none = asyncio.Event()

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if not self.count:
            self._none.set()

    async def over(self) -> None:
        """Returns when there is none."""
        while self.count:
            self._none.clear()
            await self._none.wait()


class InFlight:
    """Each is one block `with arrivals.now`. Those that came between two calls of `passed` are counted together."""

    __slots__ = ("_before", "now")

    def __init__(self) -> None:
        self.now = Inside()
        self._before: list[Inside] = []

    async def over(self) -> None:
        """Returns when there is none."""
        while under_way := [wave for wave in (*self._before, self.now) if wave.count]:
            await under_way[0].over()

    async def passed(self) -> None:
        """Returns when those that are on their way at the time of the call have arrived."""
        leaving, self.now = self.now, Inside()
        self._before.append(leaving)
        for wave in tuple(self._before):
            await wave.over()
        self._before.remove(leaving)


class Drain(asyncio.Event):
    """Set when the process is about to go."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[Callable[[], None]] = set()

    def set(self) -> None:
        super().set()
        for callback in tuple(self._told):
            callback()

    @contextmanager
    def telling(self, callback: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `callback` is called when it is set; at once if it is set already."""
        self._told.add(callback)
        try:
            if self.is_set():
                callback()
            yield
        finally:
            self._told.discard(callback)


_GRACE = 1.0
"""Seconds that a cancelled task has to come to its end."""

_left: set[asyncio.Task[Any]] = set()
"""Tasks that went on: asyncio holds them only as long as something else does."""


async def stop(task: asyncio.Task[Any]) -> bool:
    """Whether it has ended. Whoever is cancelled in the meantime waits no longer."""
    if task.done():
        return True
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=_GRACE)
    finally:
        if not task.done():
            _leave(task)
    return task.done()


def _leave(task: asyncio.Task[Any]) -> None:
    _left.add(task)
    task.add_done_callback(_left.discard)
    # Else the event loop would wait for it at its end. Source: asyncio, "Extending".
    asyncio.tasks._unregister_task(task)


def forget(error: BaseException | None) -> None:
    """Takes the tracebacks from it, and from all that led to it."""
    known: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in known:
            known.add(id(one))
            # Some refuse an assignment, as frozen dataclasses do.
            BaseException.with_traceback(one, None)
            waiting += [one.__cause__, one.__context__]
            if isinstance(one, BaseExceptionGroup):
                waiting += one.exceptions


class Watchdog:
    """Calls `late` once a wait has lasted `seconds`. Used by one event loop; only one wait at a time."""

    __slots__ = ("_late", "_loop", "_seconds", "_since", "_timer")

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._seconds = seconds
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        self._since = None

    def close(self) -> None:
        """Ends the wait, and keeps nothing alive any more."""
        self._since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._since is None:
            return
        left = self._since + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._since = None
            self._late()
