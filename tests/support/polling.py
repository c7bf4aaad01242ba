"""Waits for what no event reports: the state of another process, of the operating system or of a database file."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

_INTERVAL = 0.02


async def until(reached: Callable[[], bool | Awaitable[bool]], seconds: float = 60) -> None:
    """Raises: TimeoutError."""
    async with asyncio.timeout(seconds):
        while True:
            found = reached()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(_INTERVAL)


async def interval() -> None:
    """Between two looks at what no event reports, such as two attempts of a client at a gateway that is away."""
    await asyncio.sleep(_INTERVAL)
