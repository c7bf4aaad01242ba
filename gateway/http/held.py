"""An operation that waits for an event before its answer begins. Law: it ends with its client."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The client disconnected before its request was complete, or before its answer was there."""


async def while_connected(work: Awaitable[T], receive: Receive) -> T:
    """What `work` returns or raises. It is cancelled when the client disconnects; then ClientGone is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(_disconnect(receive))
            result = await work
            watcher.cancel()
    except BaseExceptionGroup as ended:
        raise ended.exceptions[0] from None
    return result


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone
