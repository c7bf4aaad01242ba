"""A command line in a process of its own, on a terminal that a test types into."""

import asyncio
import os
import pty
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

_BOUND_SECONDS = 60
_DEAF_SECONDS = 5
_PROJECT = Path(__file__).parents[3]
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
# Ctrl-C reaches only the programs whose controlling terminal it is.
_START = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'gateway', *sys.argv[1:]])"
)

T = TypeVar("T")


class Terminal:
    """`shown`: everything on the screen, without colours."""

    def __init__(self, process: asyncio.subprocess.Process, screen: int) -> None:
        self._process = process
        self._screen = screen
        self._raw = bytearray()
        self._news = asyncio.Event()
        self._asked = 0

    @property
    def shown(self) -> str:
        return _COLOUR.sub("", self._raw.decode(errors="replace").replace("\r\n", "\n"))

    def read(self) -> None:
        try:
            chunk = os.read(self._screen, 65536)
        except OSError:  # the other side has closed it
            chunk = b""
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._screen)
        self._raw += chunk
        self._news.set()

    async def until(self, text: str) -> None:
        """Returns when this text is on the screen, after the text of the wait before."""
        try:
            async with asyncio.timeout(_BOUND_SECONDS):
                while (found := self.shown.find(text, self._asked)) < 0:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(
                f"{text!r} does not come behind {self.shown[: self._asked]!r}: {self.shown!r}"
            ) from None
        self._asked = found + len(text)

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    async def interrupt(self, reaction: Callable[[], Awaitable[T]]) -> T:
        """Types Ctrl-C at a prompt, again if nothing is shown: a line editor misses it while it reads another key."""
        async with asyncio.timeout(_BOUND_SECONDS):
            while True:
                self.type("\x03")
                try:
                    async with asyncio.timeout(_DEAF_SECONDS):
                        return await reaction()
                except TimeoutError:
                    continue

    async def ended(self) -> int:
        async with asyncio.timeout(_BOUND_SECONDS):
            return await self._process.wait()


@asynccontextmanager
async def terminal(*arguments: str) -> AsyncIterator[Terminal]:
    """Runs `a2a-gateway ARGUMENTS...`."""
    screen, inside = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("A2A_GATEWAY")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _START,
        *arguments,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        cwd=_PROJECT,
        env=environment | {"TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(inside)
    found = Terminal(process, screen)
    loop = asyncio.get_running_loop()
    loop.add_reader(screen, found.read)
    try:
        yield found
    finally:
        loop.remove_reader(screen)
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(screen)
