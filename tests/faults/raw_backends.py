"""A backend of raw bytes: records a real answer of each wire, so that a test can send its bytes in any other way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from gateway.testing.serving import serve
from tests.adapters.raw_server import Answer, RawServer
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Json, Say
from tests.emulators.server import Emulator
from tests.faults.broken_backends import KEY

ANSWER = "Grüße, 🌍!\u2028"

_ASKED: dict[str, tuple[type[Emulator], str, Json]] = {
    "openai-responses": (ResponsesServer, "responses", {"input": [{"role": "user", "content": "hello"}]}),
    "openai-chat": (ChatServer, "chat/completions", {"messages": [{"role": "user", "content": "hello"}]}),
}


async def recorded(wire: str) -> bytes:
    """The event stream in which the emulator of this wire says `ANSWER`."""
    emulator, path, body = _ASKED[wire]
    async with serve(emulator(lambda _: [Say(ANSWER, chunks=4)]).app) as url, httpx2.AsyncClient() as http:
        answer = await http.post(f"{url}/v1/{path}", json={"model": "m", "stream": True, **body})
    return answer.content


@asynccontextmanager
async def raw_backend(answer: Answer) -> AsyncIterator[RawServer]:
    server = RawServer(answer)
    listener = await asyncio.start_server(server.serve_connection, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        await server.stop()
        listener.close()


def agent(wire: str, server: RawServer, more: str = "") -> str:
    """The YAML of the agent `raw` in front of it."""
    timeouts = "{first_byte: 5s, between_bytes: 5s}"
    settings = f"type: {wire}, model: m, base_url: '{server.url}/v1', api_key: {KEY}, timeouts: {timeouts}"
    return f"raw: {{{settings}{more and ', '}{more}}}"
