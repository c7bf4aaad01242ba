"""A client for ASGI applications in this process: exact bytes in, exact bytes out, streams that the client can close."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.types import ASGIApp, Message, Scope

Headers = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


def scope_of(method: str, target: str, headers: Headers) -> Scope:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
    }


def _answer(messages: list[Message]) -> Answer:
    start, *rest = messages
    headers = tuple((name.decode(), value.decode()) for name, value in start["headers"])
    return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in rest))


async def request(
    app: ASGIApp, method: str, target: str, headers: Headers = (), body: bytes | Iterable[bytes] = b""
) -> Answer:
    """One complete exchange. A body of several chunks arrives in as many messages."""
    chunks = [body] if isinstance(body, bytes) else list(body)
    incoming = [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks)}
        for index, chunk in enumerate(chunks, start=1)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        if incoming:
            return incoming.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope_of(method, target, headers), receive, send)
    return _answer(sent)


class Live:
    """A response that is still being sent."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self._gone = asyncio.Event()
        self.ended = asyncio.Event()

    async def start(self) -> Message:
        return await self._next()

    async def chunk(self) -> bytes:
        body: bytes = (await self._next())["body"]
        return body

    async def rest(self) -> bytes:
        """Everything until the end of the body."""
        chunks = []
        while True:
            message = await self._next()
            chunks.append(message["body"])
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def _next(self) -> Message:
        async with asyncio.timeout(60):
            return await self.messages.get()

    def leave(self) -> None:
        self._gone.set()

    async def gone(self) -> None:
        await self._gone.wait()


@asynccontextmanager
async def stream(
    app: ASGIApp,
    method: str,
    target: str,
    headers: Headers = (),
    body: bytes | None = b"",
    takes: float = math.inf,
) -> AsyncIterator[Live]:
    """An open response. At its end the block disconnects the client and waits until the application has ended.

    A `body` of None never arrives. The client takes `takes` messages and then no more.
    """
    live = Live()
    incoming = [{"type": "http.request", "body": body, "more_body": False}] if body is not None else []

    async def receive() -> Message:
        if incoming:
            return incoming.pop(0)
        await live.gone()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if live.messages.qsize() >= takes:
            await asyncio.Event().wait()
        live.messages.put_nowait(message)

    async def run() -> None:
        await app(scope_of(method, target, headers), receive, send)
        live.ended.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        yield live
        live.leave()
