"""Work on large values, in another thread. Law: the event loop makes no work whose time grows with what a caller has stored;
small work stays in it, because switching threads costs more.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 1024 * 1024
"""Bytes. Reading or writing so much JSON takes some milliseconds. What every request does compares with it by itself, because
four coroutines took 1 % of a GetTask."""


async def off_loop(size: int, work: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """What the work returns or raises. `size` is the number of bytes that it works on."""
    return await asyncio.to_thread(work, *arguments, **more) if size > LARGE else work(*arguments, **more)
