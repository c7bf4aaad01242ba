"""Waits for the first of several, and ends a task that runs the code of others. Law: such a task gets a short time to end;
after that nothing waits for it, not even the end of the process."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeAlias

Wait: TypeAlias = Coroutine[Any, Any, object] | asyncio.Task[None]

_GRACE = 1.0
"""Seconds that a cancelled task has to come to its end."""

_abandoned: set[asyncio.Task[Any]] = set()
"""Tasks that did not end: asyncio holds a task only as long as something else does."""


async def first_of(*waits: Wait) -> None:
    """Returns when one has ended, and cancels the others, except tasks, which belong to their own group."""
    async with asyncio.TaskGroup() as group:
        tasks = [wait if isinstance(wait, asyncio.Task) else group.create_task(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task, wait in zip(tasks, waits, strict=True):
            if task is not wait:
                task.cancel()


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
