"""What is on its way to become a turn of this process: read, checked, stored, and not yet begun. Law: who waits for the
last of it does not miss one, however long it takes."""

import asyncio


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


class Arrivals:
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
