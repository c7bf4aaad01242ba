"""MCP servers in processes of their own, and how tests wait for them."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.a2a.model import Json
from gateway.ports.tools import ToolRun
from tests.support.ports import free_port

ROOT = Path(__file__).parents[3]
SMALL = (sys.executable, "-m", "tests.adapters.tools.mcp_server")
BOUND = 60
_PAUSE = 0.01


async def eventually(holds: Callable[[], Awaitable[object]]) -> None:
    """Returns when the condition holds: another process sends no event for it."""
    async with asyncio.timeout(BOUND):
        while True:
            if await holds():
                return
            await asyncio.sleep(_PAUSE)


@dataclass
class Served:
    """A server at an address, in a process that can be killed and started again. The command gets the port as an argument."""

    command: tuple[str, ...] = SMALL
    environment: dict[str, str] | None = None
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        words = [word.replace("PORT", str(self.port)) for word in self.command]
        variables = {name: value.replace("PORT", str(self.port)) for name, value in (self.environment or {}).items()}
        self.process = await asyncio.create_subprocess_exec(
            *words,
            cwd=ROOT,
            env=variables or None,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await eventually(self._answers)

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


def run(tool: str, progress: Callable[[str], None] = lambda _: None, **arguments: Json) -> ToolRun:
    return ToolRun(tool, arguments, "call-1", "ctx", "me", progress)
