import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from gateway.ports.adapter import Adapter
from gateway.testing.adapter_suite import AdapterSuite
from pydantic import SecretStr, ValidationError

from echo_adapter import EchoSettings, factory


class EchoService:
    """The real wire, on loopback. `pieces` None: the service echoes. `last`: the last line, without a line end."""

    pieces: tuple[str, ...] | None = None
    last = '{"done": true}'
    status = 200
    stalls = trickles = False

    def __init__(self) -> None:
        self.received: list[list[tuple[str, str]]] = []
        self.released = asyncio.Event()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self.answer, "127.0.0.1")
        self.port = self.server.sockets[0].getsockname()[1]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length:")[2].split("\r\n")[0])
        messages = json.loads(await reader.readexactly(length))["messages"]
        self.received.append([(message["role"], message["text"]) for message in messages])
        status = self.status if head.startswith("POST /echo HTTP/1.1\r\n") else 404
        writer.write(
            f"HTTP/1.1 {status} Status\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n".encode()
        )
        pieces = (messages[-1]["text"],) if self.pieces is None else self.pieces
        text = "".join(json.dumps({"text": piece}, ensure_ascii=False) + "\n" for piece in pieces)
        await self.send(writer, text if self.stalls else text + self.last)
        if self.stalls:
            await reader.read()
            self.released.set()
        writer.close()

    async def send(self, writer: asyncio.StreamWriter, text: str) -> None:
        data = text.encode()
        for chunk in map(bytes, zip(data)) if self.trickles else (data,):
            writer.write(chunk)
            await asyncio.sleep(0)  # lets the client read it

    def stop(self) -> None:
        self.server.close()


class TestEcho(AdapterSuite):
    factory = factory
    secret = "canary-key"

    @pytest.fixture
    async def adapter(self) -> AsyncIterator[Adapter]:
        self.service = EchoService()
        await self.service.start()
        url = f"http://127.0.0.1:{self.service.port}/echo"
        adapter = factory.build(EchoSettings(url=url, api_key=SecretStr(self.secret)))
        yield adapter
        await adapter.aclose()
        self.service.stop()

    async def backend_answers(self, *pieces: str) -> None:
        self.service.pieces, self.service.stalls = pieces, False

    async def backend_echoes(self) -> None:
        self.service.pieces = None

    async def backend_trickles(self) -> None:
        self.service.trickles = True

    async def backend_fails(self) -> None:
        self.service.last = json.dumps({"error": f"no ink for {self.secret}"})

    async def backend_refuses(self) -> None:
        self.service.status = 400

    async def backend_answers_status(self, status: int) -> None:
        self.service.status = status

    async def backend_breaks_off(self, *pieces: str) -> None:
        self.service.pieces, self.service.last = pieces, ""

    async def backend_stalls(self, *pieces: str) -> None:
        self.service.pieces, self.service.stalls = pieces, True

    async def backend_is_released(self) -> None:
        await self.service.released.wait()

    async def backend_disappears(self) -> None:
        self.service.stop()

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return self.service.received


def test_an_address_that_cannot_be_one_is_found_in_the_settings() -> None:
    with pytest.raises(ValidationError, match="http://"):
        EchoSettings(url="localhost:9000/echo")
