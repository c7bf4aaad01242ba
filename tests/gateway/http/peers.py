"""The other end of a connection: raw bytes to a server of the gateway's own connections."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from gateway.http.connection import Connection
from gateway.http.reply import Reply
from tests.support.core import BOUND, soon

_ESTABLISHED = 1
Connect: TypeAlias = Callable[[], Awaitable["Peer"]]


class Peer:
    """The other end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def rest(self) -> bytes:
        """All data until the server ends the connection, as it has to."""
        try:
            return await soon(self._reader.read())
        except ConnectionError:
            return b""

    async def answer(self) -> tuple[int, Any]:
        """Status and JSON of the next answer."""
        head = await soon(self._reader.readuntil(b"\r\n\r\n"))
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(head.split()[1]), msgspec.json.decode(await soon(self._reader.readexactly(length)))

    async def line(self) -> bytes:
        return await soon(self._reader.readuntil(b"\r\n\r\n"))

    def end(self) -> None:
        """Ends the own side of the connection; the peer still reads."""
        self._writer.write_eof()

    async def say_last(self, data: bytes) -> None:
        """The end of the own side arrives with the data, and not behind the beginning of the answer."""
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        await self.say(data)
        self.end()

    def leave(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def stop_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def dropped(self) -> None:
        """Returns when the server has dropped the connection, with or without unsent data."""
        connection = self._writer.get_extra_info("socket")
        async with asyncio.timeout(BOUND):
            while connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED:  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def take(self, most: int) -> bytes:
        return await soon(self._reader.read(most))


def told(data: bytes) -> tuple[int, str]:
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), msgspec.json.decode(body)["error"]["message"]


@asynccontextmanager
async def served(app: ASGIApp, *, uvicorns: float = 5, **limits: Any) -> AsyncIterator[Connect]:
    """`uvicorns`: the seconds for which uvicorn keeps an idle connection by itself."""
    kind = type("ShortLimits", (Connection,), limits)
    config = Config(
        app, http=kind, ws="none", lifespan="off", interface="asgi3", log_config=None, access_log=False,
        timeout_keep_alive=int(uvicorns),
    )  # fmt: skip
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    failures: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, failure: failures.append(failure))
    listener = await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    peers: list[Peer] = []

    async def connect() -> Peer:
        peers.append(Peer(*await asyncio.open_connection("127.0.0.1", port)))
        return peers[-1]

    try:
        yield connect
    finally:
        for peer in peers:
            peer.leave()
        listener.close()
        for connection in tuple(state.connections):
            connection.transport.abort()
        async with asyncio.timeout(BOUND):
            while state.connections or state.tasks:  # noqa: ASYNC110
                await asyncio.sleep(0)
    assert failures == []


async def all_is_read(connect: Connect) -> None:
    """Returns when the server has read all data sent so far."""
    other = await connect()
    await other.say(GET)
    await other.line()


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the complete body."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await Reply(b"%d" % size)(scope, receive, send)


GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
