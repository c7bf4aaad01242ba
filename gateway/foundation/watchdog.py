"""A limit on how long one of many successive waits may last. Law: one timer, however many waits there are.

A timer for each wait (`asyncio.timeout`, or aiohttp's) takes 5 % of the CPU of a delta that comes alone.
"""

import asyncio
from collections.abc import Callable


class Watchdog:
    """Calls `late` once a wait has lasted `seconds`. For one event loop, and one wait at a time."""

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
        """Ends the wait and cancels the timer, which would keep the callback alive."""
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
