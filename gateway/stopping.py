"""Ends a task that runs what others wrote. Law: it gets a moment, and then nobody waits for it any more, not even the end of
the process."""

import asyncio
from typing import Any

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
