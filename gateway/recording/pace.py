"""The reads of a recorded answer, when their time has come. Law: with no time to pass, one read still follows another in a
later round of the event loop.
"""

import asyncio
from collections.abc import AsyncGenerator

from gateway.ports.wire import Answer


async def passed(answer: Answer) -> AsyncGenerator[bytes, None]:
    """Each read of the answer to a request that is made now."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for at, read in answer.reads:
        await asyncio.sleep(max(0.0, began + at - loop.time()) if at else 0)
        yield read
