"""What a program that was started here writes to its standard error, as lines of the log.

Law: a line is a value with the name of its source, and is bounded; a program that writes without an end of a line fills no
memory.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TextIO

import structlog

from gateway.foundation.lines import Lines

log = structlog.get_logger("adapters.tools.program_output")

_LONGEST = 8192
_REST_SECONDS = 0.5


@asynccontextmanager
async def logged_output(source: str) -> AsyncGenerator[TextIO]:
    """A file to be the standard error of a program. At the end of the block the program has ended; what others hold open of
    the file is read no more."""
    reading, writing = os.pipe()
    ended = asyncio.Event()
    lines = Lines(partial(_log, source), ended.set, longest=_LONGEST)
    with os.fdopen(writing, "w", encoding="utf-8") as output:
        pipe = os.fdopen(reading, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: lines, pipe)
        try:
            yield output
        finally:
            output.close()
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), _REST_SECONDS)
            finally:
                transport.close()


def _log(source: str, line: bytes) -> None:
    text = line[:_LONGEST].decode(errors="replace").rstrip()
    if text:
        log.info("tools.output", source=source, line=text)
