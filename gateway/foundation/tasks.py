"""Ends a task that runs the code of others. Law: it gets a short time to end; after that nothing waits for it, not even the
end of the process."""

import asyncio
from typing import Any

_GRACE = 1.0
"""Seconds that a cancelled task has to come to its end."""

_abandoned: set[asyncio.Task[Any]] = set()
"""Tasks that did not end: asyncio holds a task only as long as something else does."""


async def stop(task: asyncio.Task[Any]) -> bool:
    """Whether the task has ended. A cancelled caller does not wait any longer, and abandons the task."""
    if task.done():
        return True
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=_GRACE)
    finally:
        if not task.done():
            _abandon(task)
    return task.done()


def _abandon(task: asyncio.Task[Any]) -> None:
    _abandoned.add(task)
    task.add_done_callback(_abandoned.discard)
    # Otherwise the event loop would wait for the task at its end. Source: asyncio, "Extending".
    asyncio.tasks._unregister_task(task)
