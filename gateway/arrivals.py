"""What is on its way to become a turn of this process: read, checked, stored, and not yet begun. Law: who waits for the
last of it does not miss one, however long it takes."""

import asyncio


class Arrivals:
    """Each is one `with` block."""

    __slots__ = ("_count", "_none")

    def __init__(self) -> None:
        self._count = 0
        self._none: asyncio.Event | None = None

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count and self._none is not None:
            self._none.set()

    async def over(self) -> None:
        """Returns when there is none."""
        while self._count:
            if self._none is None or self._none.is_set():
                self._none = asyncio.Event()
            await self._none.wait()
