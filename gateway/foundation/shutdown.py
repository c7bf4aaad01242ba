"""The end of the process: the event that begins it, and counts of the work in flight that it waits for.

Law: a subscriber to the event needs no task of its own; a waiter for the last piece of work misses none, however long it takes.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

T = TypeVar("T")


class DrainOver(Exception):
    """The process does not wait for its turns any longer."""


class _Told(asyncio.Event):
    """Set once, and tells so."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks: set[Callable[[], None]] = set()

    def set(self) -> None:
        super().set()
        for callback in tuple(self.callbacks):
            callback()

    def on_set(self, callback: Callable[[], None]) -> "_Callback":
        """While its block runs, `callback` is called when the event is set; at once where it is set already."""
        return _Callback(self, callback)


class _Callback(msgspec.Struct):
    """A generator would take three times as long, and each message that waits for its answer has two."""

    _told: _Told
    _call: Callable[[], None]

    def __enter__(self) -> None:
        if self._told.is_set():
            self._call()
        self._told.callbacks.add(self._call)

    def __exit__(self, *_: object) -> None:
        self._told.callbacks.discard(self._call)


class Drain(_Told):
    """Set once, when the process is about to end. `over` is set when it does not wait for its turns any longer: all of them
    have ended, or the grace has."""

    def __init__(self) -> None:
        super().__init__()
        self.over = _Told()

    # Neither `asyncio.timeout` nor `asyncio.shield`: each message that waits for its answer waits here.
    async def before_over(self, future: asyncio.Future[T]) -> T:
        """The result of the future, which is not cancelled with its waiter. Raises: DrainOver."""
        if not future.done():
            waiting = asyncio.get_running_loop().create_future()
            wake = partial(_wake, waiting)
            future.add_done_callback(wake)
            try:
                with self.over.on_set(wake):
                    await waiting
            finally:
                future.remove_done_callback(wake)
        if future.done():
            return future.result()
        raise DrainOver


def _wake(waiting: asyncio.Future[None], *_: object) -> None:
    if not waiting.done():
        waiting.set_result(None)


class ActiveCount:
    """Counts the `with` blocks that are open."""

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

    async def wait_zero(self) -> None:
        while self.count:
            self._none.clear()
            await self._none.wait()


class InFlight:
    """One block `with in_flight.now` for each piece of work. The blocks between two calls of `wait_current` count together."""

    __slots__ = ("_before", "now")

    def __init__(self) -> None:
        self.now = ActiveCount()
        self._before: list[ActiveCount] = []

    async def wait_zero(self) -> None:
        """Returns when nothing is in flight, including what began during the wait."""
        while active := [wave for wave in (*self._before, self.now) if wave.count]:
            await active[0].wait_zero()

    async def wait_current(self) -> None:
        """Returns when everything has ended that was in flight at the time of the call."""
        current, self.now = self.now, ActiveCount()
        self._before.append(current)
        for wave in tuple(self._before):
            await wave.wait_zero()
        self._before.remove(current)
