"""How long idle connections of the gateway are kept."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network

import pytest

from adapters.http import connection
from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from adapters.tools import http
from gateway.foundation import keep_alive
from gateway.foundation.addresses import TargetRules
from gateway.foundation.clock import Clock
from gateway.foundation.resolver import Resolver
from gateway.ports.tools import ToolRun
from gateway.push import sender as sending
from tests.support.core import soon


@asynccontextmanager
async def _server() -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """Answers the first request of a connection; the event is set when the client has closed it."""
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", closed
    finally:
        server.close()


async def _to_a_backend(url: str, closed: asyncio.Event) -> None:
    client = HttpClient(Timeouts(), Failures(()))
    assert await client.request_json("GET", url) == {}
    await soon(closed.wait())
    await client.aclose()


async def _to_a_tool(url: str, closed: asyncio.Event) -> None:
    tool = http.HttpTool(http.HttpToolSettings.model_validate({"url": url, "description": "d", "method": "GET"}))
    assert not (await tool.run(ToolRun("t", {}, "key", "c", "p", lambda _: None))).error
    await soon(closed.wait())
    await tool.aclose()


async def _to_a_receiver(url: str, closed: asyncio.Event) -> None:
    rules = TargetRules(http=True, ports=(), networks=(ip_network("127.0.0.0/8"),))
    lookup = Resolver(rules.permit)
    sender = sending.Sender(rules, lookup, 5.0, Clock())
    assert (await sender.post(url, {}, b"{}")).delivered
    await soon(closed.wait())
    await sender.aclose()
    lookup.close()


@pytest.mark.parametrize(
    ("module", "client"), [(connection, _to_a_backend), (http, _to_a_tool), (sending, _to_a_receiver)]
)
async def test_an_idle_connection_is_closed_by_the_gateway(
    monkeypatch: pytest.MonkeyPatch, module: object, client: Callable[[str, asyncio.Event], Awaitable[None]]
) -> None:
    monkeypatch.setattr(module, "CLIENT_KEEP_ALIVE", 0.01)
    async with _server() as (url, closed):
        await client(url, closed)


def test_outgoing_connections_are_kept_shorter_than_servers_do_and_incoming_ones_longer_than_clients_do() -> None:
    assert keep_alive.CLIENT_KEEP_ALIVE < 5 < 60 < keep_alive.SERVER_KEEP_ALIVE
