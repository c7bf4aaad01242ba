"""A server of raw bytes, for answers that no emulator gives."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Received:
    """A request: `head` with the request line, in lower case except for the values."""

    head: str
    body: bytes

    def header(self, name: str) -> str | None:
        for line in self.head.splitlines()[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return None


@dataclass(slots=True)
class Exchange:
    """One request on a raw connection, and the means to answer it."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def stream(self, *pieces: bytes) -> None:
        """A whole answer: an event stream, chunk by chunk."""
        await self.send(EVENT_STREAM, *(chunk(piece) for piece in pieces), LAST_CHUNK)

    def reset(self) -> None:
        """Drops the connection with RST, not FIN."""
        connection: socket.socket = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Returns when the client has closed its side."""
        with suppress(ConnectionError):
            await self.reader.read()
        self.writer.close()


Answer: TypeAlias = Callable[[Exchange], Awaitable[None]]

EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def plain(status: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole answer that is no stream. Underscores in names of headers are hyphens."""
    fields = {"Content-Length": str(len(body))} | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


@dataclass(slots=True)
class RawServer:
    """Answers each request with `answer`; a connection stays open unless the answer closes it."""

    answer: Answer
    url: str = ""
    connections: int = 0
    requests: list[Received] = field(default_factory=list)
    _serving: set["asyncio.Task[None] | None"] = field(default_factory=set)

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving.add(asyncio.current_task())
        # It is cancelled only to be stopped, and asyncio before Python 3.12 has no place for a connection that ends so.
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                request = Received(head, b"")
                body = await reader.readexactly(int(request.header("content-length") or 0))
                request = Received(head, body)
                self.requests.append(request)
                await self.answer(Exchange(request, reader, writer))
        writer.close()

    async def stop(self) -> None:
        tasks = [task for task in self._serving if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


StartRaw: TypeAlias = Callable[[Answer], Awaitable[RawServer]]
