"""Counts of work in flight, such as messages that were read but have not begun their turn yet. Law: a waiter for the last of
them misses none, however long it takes."""

import asyncio


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
