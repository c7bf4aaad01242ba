"""A forward proxy that keeps what it was asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(slots=True)
class ForwardProxy:
    """`heads` are the heads of the requests that it got. With `refuses`, it answers them with this status."""

    url: str = ""
    refuses: str = ""
    heads: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head.decode())
        if self.refuses:
            writer.write(f"HTTP/1.1 {self.refuses}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return
        method, target, _ = head.decode().split(" ", 2)
        host, _, port = (target if method == "CONNECT" else target.split("/")[2]).rpartition(":")
        there, back = await asyncio.open_connection("127.0.0.1" if host == "localhost" else host, int(port))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            back.write(head)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, back))
                group.create_task(_copy(there, writer))
        finally:
            back.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


@asynccontextmanager
async def forward_proxy(refuses: str = "") -> AsyncIterator[ForwardProxy]:
    proxy = ForwardProxy(refuses=refuses)
    running: set[asyncio.Task[None] | None] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.current_task())
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                await proxy.serve(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listener.close()
        tasks = [task for task in running if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
