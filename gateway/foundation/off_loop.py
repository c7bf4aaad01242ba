"""Work on large values, in another thread. Law: the event loop makes no work whose time grows with what a caller has stored;
small work stays in it, because switching threads costs more. What every request does compares with `LARGE` by itself, because
four coroutines took 1 % of a GetTask.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gateway.foundation.sizes import LARGE

P = ParamSpec("P")
T = TypeVar("T")


async def off_loop(size: int, work: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """What the work returns or raises. `size` is the number of bytes that it works on."""
    return await asyncio.to_thread(work, *arguments, **more) if size > LARGE else work(*arguments, **more)
