"""Gateways started with `serve` in processes of their own."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.a2a_client import A2A, a2a_http, text_of
from tests.running import Child

_BOUND_SECONDS = 60


class Served(Child):
    """A gateway whose log a test can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        super().pipe_data_received(fd, data)
        self._more.set()

    async def logged(self, event: str) -> dict[str, Any]:
        """Removes and returns the first line of the log with this event."""
        async with asyncio.timeout(_BOUND_SECONDS):
            while (found := self._take(event)) is None:
                self._more.clear()
                await self._more.wait()
        return found

    def _take(self, event: str) -> dict[str, Any] | None:
        for line in bytes(self.output).splitlines(keepends=True):
            if line.startswith(b"{") and line.endswith(b"\n"):
                found: dict[str, Any] = json.loads(line)
                if found["event"] == event:
                    self.output = self.output.replace(line, b"", 1)
                    return found
        return None


@asynccontextmanager
async def serving(*arguments: str, folder: Path, **environment: str) -> AsyncIterator[Served]:
    """`a2a-gateway serve ARGUMENTS... --port 0` in this folder, while the block runs."""
    command = [sys.executable, "-m", "gateway", "serve", *arguments, "--port", "0"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("A2A_GATEWAY_", "OPENAI_"))}
    _, child = await asyncio.get_running_loop().subprocess_exec(
        Served, *command, cwd=folder, env=kept | environment, stdin=None, stderr=asyncio.subprocess.STDOUT
    )
    try:
        await child.ready()
        yield child
    finally:
        await child.aclose()


async def answer(child: Served, agent: str) -> str:
    """The answer of this agent to Hello."""
    async with a2a_http(child.url) as http:
        return text_of(await A2A(http, agent).send("Hello"))
