"""A proxy in front of a server of PostgreSQL that cuts one connection around a COMMIT."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from urllib.parse import urlsplit

_COMMIT = b"COMMIT\x00"
"""In the message that prepares it, and in each that runs it."""


class Cut(Enum):
    BEFORE = auto()
    """The server never gets the COMMIT."""
    BEHIND = auto()
    """The server gets it, and its answer is lost."""
    SWALLOWED = auto()
    """The server never gets it, and the connection stays open."""
    HELD = auto()
    """The server gets it when the proxy lets it go."""


@dataclass(slots=True)
class CuttingProxy:
    """`next` is what happens to the next COMMIT, None for nothing. `cuts` counts. While `closed`, nobody gets in. `let_go` ends
    the wait of a COMMIT that is held."""

    server: tuple[str, int]
    next: Cut | None = None
    cuts: int = 0
    closed: bool = False
    port: int = 0
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            writer.close()
            return
        there, back = await asyncio.open_connection(*self.server)
        self._open |= {writer, back}
        try:
            await asyncio.gather(self._forth(reader, back, there, writer), _copy(there, writer))
        except ConnectionError:
            pass
        finally:
            for one in (writer, back):
                self._open.discard(one)
                one.close()

    async def _forth(
        self,
        reader: asyncio.StreamReader,
        back: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while data := await reader.read(2**16):
            if self.next is not None and _COMMIT in data:
                cut, self.next = self.next, None
                self.cuts += 1
                if cut is Cut.BEHIND:
                    writer.transport.abort()
                    back.write(data)
                    await back.drain()
                    # The server has the COMMIT before its connection ends.
                    back.write_eof()
                    return
                if cut is Cut.BEFORE:
                    writer.transport.abort()
                    back.transport.abort()
                if cut is not Cut.HELD:
                    return
                await self.let_go.wait()
            back.write(data)
            await back.drain()
        back.close()

    def mute(self) -> None:
        """Nothing passes any more over the connections that are open, and nobody is told."""
        for writer in self._open:
            transport = writer.transport
            assert isinstance(transport, asyncio.ReadTransport)
            transport.pause_reading()

    def cut_all(self) -> None:
        for writer in tuple(self._open):
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def cutting_proxy(url: str) -> AsyncGenerator[tuple[CuttingProxy, str], None]:
    """The proxy, and the URL of the database behind it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = CuttingProxy((parts.hostname, parts.port))
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = proxy.serve
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    credentials = parts.netloc.rpartition("@")[0]
    async with server:
        try:
            yield proxy, parts._replace(netloc=f"{credentials}@127.0.0.1:{proxy.port}").geturl()
        finally:
            proxy.cut_all()
