"""A proxy between the gateway and a peer: records what passes, byte for byte, and can cut a streamed answer short."""

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
# Of one connection only, or set anew for the other one.
_HOP_BY_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"host", b"date", b"server"}
_EVENT_END = b"\n\n"


@dataclass(slots=True)
class Exchange:
    """One request and what has passed of its answer so far; `body` is None where there was no JSON."""

    method: str
    path: str
    body: Any
    status: int | None = None
    answer: bytes = b""
    cut: bool = False

    @property
    def events(self) -> list[Any]:
        """The data of each whole server-sent event that passed."""
        frames = self.answer.split(_EVENT_END)[:-1]
        lines = [line for frame in frames for line in frame.splitlines() if line.startswith(b"data:")]
        return [json.loads(line.removeprefix(b"data:")) for line in lines if b"[DONE]" not in line]


@dataclass(slots=True)
class RecordingProxy:
    """What a test sees of a running proxy; `url` stands for the peer's `url`."""

    url: str
    exchanges: list[Exchange] = field(default_factory=list)
    _cuts: dict[int, int] = field(default_factory=dict)
    _streams: int = 0

    def cut_stream(self, after_events: int, nth: int = 1) -> None:
        """Drops the `nth` streamed answer from now on, towards both sides, once that many events have passed."""
        self._cuts[self._streams + nth] = after_events

    def sent(self, method: str, path: str) -> list[Any]:
        """The bodies of the requests with this method and path, in order of arrival."""
        return [exchange.body for exchange in self.exchanges if (exchange.method, exchange.path) == (method, path)]

    def take_cut(self, response: httpx2.Response) -> int | None:
        """Counts the answer if it is a stream; how many events of it may pass, or None for all."""
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            return None
        self._streams += 1
        return self._cuts.pop(self._streams, None)


class StreamCut(Exception):
    """Ends an answer without its last chunk, as a lost connection does; uvicorn logs it as a crash."""


@contextmanager
def recording_proxy(peer_url: str) -> Iterator[RecordingProxy]:
    """Runs a proxy in front of `peer_url` on a free loopback port, in a thread with an event loop of its own."""
    base = httpx2.URL(peer_url)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        # Listening from here on, so that nobody has to wait for the thread.
        listener.listen()
        proxy = RecordingProxy(f"http://127.0.0.1:{listener.getsockname()[1]}{base.path.rstrip('/')}")
        application = _application(proxy, base.copy_with(path="/"))
        server = uvicorn.Server(uvicorn.Config(application, log_config=None, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield proxy
        finally:
            server.should_exit = True
            thread.join()


def _application(proxy: RecordingProxy, peer: httpx2.URL) -> Starlette:
    client = httpx2.AsyncClient(base_url=peer, timeout=None, trust_env=False)

    @asynccontextmanager
    async def closing_client(_: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    async def forward(request: Request) -> StreamingResponse:
        content = await request.body()
        exchange = Exchange(request.method, request.url.path, _json(content))
        proxy.exchanges.append(exchange)
        headers = _forwarded(request.headers.raw)
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        upstream = client.build_request(request.method, target, headers=headers, content=content)
        response = await client.send(upstream, stream=True)
        exchange.status = response.status_code
        answer = StreamingResponse(_pass(exchange, response, proxy.take_cut(response)), response.status_code)
        answer.raw_headers = _forwarded(response.headers.raw)
        return answer

    return Starlette(routes=[Route("/{path:path}", forward, methods=_METHODS)], lifespan=closing_client)


async def _pass(exchange: Exchange, response: httpx2.Response, events: int | None) -> AsyncIterator[bytes]:
    # What is recorded is so before the client can see it, and the peer has lost its listener before the client has.
    try:
        async for chunk in response.aiter_raw():
            passed = _within(exchange.answer, chunk, events)
            exchange.answer += passed
            exchange.cut = events is not None and exchange.answer.count(_EVENT_END) >= events
            if exchange.cut:
                await response.aclose()
            yield passed
            if exchange.cut:
                raise StreamCut
    finally:
        await response.aclose()


def _within(before: bytes, chunk: bytes, events: int | None) -> bytes:
    """The part of `chunk` that ends with the last allowed event."""
    if events is None:
        return chunk
    frames = (before + chunk).split(_EVENT_END)
    if len(frames) <= events:
        return chunk
    return (_EVENT_END.join(frames[:events]) + _EVENT_END)[len(before) :]


def _forwarded(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
