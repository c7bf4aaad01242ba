"""Answers whose first event is late. Law: the task that waits for it ends with the answer."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from gateway.ports.adapter import AdapterEvent

_LATE_SECONDS = 1.0


async def announced_when_late(
    answer: AsyncGenerator[AdapterEvent, None], announcement: Callable[[], Iterable[AdapterEvent]]
) -> AsyncGenerator[AdapterEvent, None]:
    """The same events, with those of `announcement` before them where the first is late. Raises: as `answer` does."""

    async def begin() -> AdapterEvent | None:
        return await anext(answer, None)

    beginning = asyncio.get_running_loop().create_task(begin())
    try:
        await asyncio.wait((beginning,), timeout=_LATE_SECONDS)
        if not beginning.done():
            for event in announcement():
                yield event
        first = await beginning
    finally:
        if not beginning.done():
            beginning.cancel()
            await asyncio.wait((beginning,))
    if first is not None:
        yield first
    async for event in answer:
        yield event
