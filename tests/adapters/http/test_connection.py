"""The private and undocumented API of aiohttp that is used: a name that an upgrade takes away fails here."""

import asyncio

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

from adapters.http.connection import Connection, Connector
from tests.adapters.http.conftest import Connect
from tests.adapters.raw_server import EVENT_STREAM, LAST_CHUNK, Exchange, StartRaw, chunk


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (aiohttp.TCPConnector, "_factory"),
        (aiohttp.TCPConnector, "_conns"),
        (ResponseHandler, "_reading_paused"),
        (ResponseHandler, "resume_reading"),
        (ResponseHandler, "read_timeout"),
        (ResponseHandler, "start_timeout"),
        (ResponseHandler, "set_response_params"),
        (ResponseHandler, "data_received"),
        (ResponseHandler, "set_exception"),
        (aiohttp.StreamReader, "set_exception"),
    ],
)
async def test_aiohttp_still_has_what_is_relied_on(owner: type, name: str) -> None:
    connector = aiohttp.TCPConnector()
    protocol = connector._factory()
    instances = {aiohttp.TCPConnector: connector, ResponseHandler: protocol, aiohttp.StreamReader: aiohttp.StreamReader}
    assert hasattr(instances[owner], name), f"aiohttp {aiohttp.__version__} has no {name}: read docs/adr/0016-*.md"
    await connector.close()


async def test_every_stream_comes_over_a_connection_of_our_own(
    raw: StartRaw, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, timeouts = asyncio.Event(), []
    carry = Connection.carry

    def recorded(self: Connection, content: aiohttp.StreamReader) -> None:
        carry(self, content)
        timeouts.append(self.read_timeout)

    async def answer(exchange: Exchange) -> None:
        await exchange.send(EVENT_STREAM)
        await opened.wait()
        await exchange.send(chunk(b"data: 1\n\n"), LAST_CHUNK)

    monkeypatch.setattr(Connection, "carry", recorded)
    server = await raw(answer)
    async with connect().stream(server.url, b"{}") as stream:
        opened.set()
        assert [batch async for batch in stream] == [[b"1"]]
    assert timeouts == [None]


async def test_a_connection_resumes_only_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = []
    monkeypatch.setattr(ResponseHandler, "resume_reading", lambda *_: resumed.append(True))
    connector = Connector()
    protocol = connector._factory()
    protocol.resume_reading()
    assert resumed == []
    protocol._reading_paused = True
    protocol.resume_reading()
    assert resumed == [True]
    await connector.close()
