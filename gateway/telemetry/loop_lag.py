"""How late the event loop comes back to a task that has slept."""

import asyncio
from collections.abc import Callable

from gateway.ports.observer import Observer

_SLEEP = 0.25
"""Seconds between two looks."""


async def watch_loop(observer: Observer, monotonic: Callable[[], float]) -> None:
    """Never returns."""
    while True:
        due = monotonic() + _SLEEP
        await asyncio.sleep(_SLEEP)
        observer.loop_lagged(max(0.0, monotonic() - due))
