"""What a program that was started here writes to its standard error, as lines of the log.

Law: a line is a value with the name of its source, and is bounded; a program that writes without an end of a line fills no
memory.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TextIO

import structlog

log = structlog.get_logger("adapters.tools.program_output")

_LONGEST = 8192
_REST_SECONDS = 0.5


@asynccontextmanager
async def logged_output(source: str) -> AsyncGenerator[TextIO]:
    """A file to be the standard error of a program. At the end of the block the program has ended; what others hold open of
    the file is read no more."""
    reading, writing = os.pipe()
    lines = _Lines(source)
    with os.fdopen(writing, "w", encoding="utf-8") as output:
        pipe = os.fdopen(reading, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: lines, pipe)
        try:
            yield output
        finally:
            output.close()
            try:
                await asyncio.wait({lines.ended}, timeout=_REST_SECONDS)
            finally:
                transport.close()


class _Lines(asyncio.Protocol):
    def __init__(self, source: str) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._source = source
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._log(line)

    def connection_lost(self, error: Exception | None) -> None:
        self._log(self._rest)
        if not self.ended.done():
            self.ended.set_result(None)

    def _log(self, line: bytes) -> None:
        text = line[:_LONGEST].decode(errors="replace").rstrip()
        if text:
            log.info("tools.output", source=self._source, line=text)
