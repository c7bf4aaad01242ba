"""WebSockets over real connections: frames in both directions, and every fault with its class."""

import asyncio
import base64
import hashlib
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from adapters.http.client import HttpClient
from adapters.http.signing import Credential
from adapters.http.sse import EVENT_LIMIT
from adapters.http.websocket import WebSocket
from gateway.foundation.route import Proxy, Route
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import KEY, Connect
from tests.adapters.raw_server import Exchange, RawServer, StartRaw, plain
from tests.support.forward_proxy import forward_proxy
from tests.support.refusing import refusing_port

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10


class Frame(NamedTuple):
    opcode: int
    payload: bytes


def frame(opcode: int, payload: bytes = b"") -> bytes:
    """A frame of a server. Source: RFC 6455, section 5.2."""
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
    return bytes([0x80 | opcode]) + length + payload


async def received(exchange: Exchange) -> Frame:
    """A frame of a client, which is always masked."""
    first, second = await exchange.reader.readexactly(2)
    assert second & 0x80
    size = second & 0x7F
    if size == 126:
        [size] = struct.unpack(">H", await exchange.reader.readexactly(2))
    mask = await exchange.reader.readexactly(4)
    payload = await exchange.reader.readexactly(size)
    return Frame(first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)))


async def accept(exchange: Exchange) -> None:
    key = exchange.request.header("Sec-WebSocket-Key") or ""
    digest = base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest())
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    await exchange.send(head, b"Sec-WebSocket-Accept: %s\r\n\r\n" % digest)


async def end(exchange: Exchange, code: int = 1000) -> None:
    """The server's close, and the client's answer to it."""
    await exchange.send(frame(_CLOSE, struct.pack(">H", code)))
    assert (await received(exchange)).opcode == _CLOSE
    exchange.writer.close()


def ws(server: RawServer) -> str:
    return server.url.replace("http:", "ws:")


async def texts(socket: WebSocket) -> list[str]:
    return [text async for text in socket]


async def fault(client: HttpClient, url: str) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        async with client.websocket(url) as socket:
            await texts(socket)
    return caught.value


class TestFrames:
    """Sockets without a fault."""

    async def test_text_goes_in_both_directions_until_the_server_closes(self, raw: StartRaw, connect: Connect) -> None:
        sent = []

        async def answer(exchange: Exchange) -> None:
            await accept(exchange)
            sent.append(await received(exchange))
            await exchange.send(frame(_TEXT, "é".encode()), frame(_TEXT), frame(_TEXT, b"x" * 60_000))
            await end(exchange, 1001)

        server = await raw(answer)
        async with connect().websocket(ws(server)) as socket:
            await socket.send("hello")
            assert await texts(socket) == ["é", "", "x" * 60_000]
            assert socket.close_code == 1001
        assert sent == [Frame(_TEXT, b"hello")]

    async def test_a_text_may_come_in_pieces_with_a_ping_in_between(self, raw: StartRaw, connect: Connect) -> None:
        pongs = []

        async def answer(exchange: Exchange) -> None:
            await accept(exchange)
            await exchange.send(b"\x01\x02he", frame(_PING, b"7"), b"\x80\x03llo")
            pongs.append(await received(exchange))
            await end(exchange)

        server = await raw(answer)
        async with connect().websocket(ws(server)) as socket:
            assert await texts(socket) == ["hello"]
        assert pongs == [Frame(_PONG, b"7")]

    async def test_many_frames_wait_for_a_slow_reader(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await accept(exchange)
            for number in range(200):
                await exchange.send(frame(_TEXT, b"%d %s" % (number, b"x" * 60_000)))
            await end(exchange)

        server = await raw(answer)
        async with connect().websocket(ws(server)) as socket:
            assert [text.partition(" ")[0] for text in await texts(socket)] == [str(number) for number in range(200)]

    async def test_leaving_closes_the_socket(self, raw: StartRaw, connect: Connect) -> None:
        closed = asyncio.get_running_loop().create_future()

        async def answer(exchange: Exchange) -> None:
            await accept(exchange)
            await exchange.send(frame(_TEXT, b"1"))
            closed.set_result(await received(exchange))
            await exchange.send(frame(_CLOSE, struct.pack(">H", 1000)))
            await exchange.gone()

        server = await raw(answer)
        async with connect().websocket(ws(server)) as socket:
            assert await anext(aiter(socket)) == "1"
        assert await closed == Frame(_CLOSE, struct.pack(">H", 1000))

    async def test_the_headers_of_the_handshake(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await accept(exchange)
            await end(exchange)

        server = await raw(answer)
        client = connect(route=Route(headers={"X-Team": "red"}))
        async with client.websocket(f"{ws(server)}/s?t=1", headers={"x-team": "blue", "X-Watermark": "5"}) as socket:
            assert await texts(socket) == []
        [request] = server.requests
        assert request.head.splitlines()[0] == "GET /s?t=1 HTTP/1.1"
        names = ("Authorization", "X-Team", "X-Watermark", "Upgrade")
        assert [request.header(name) for name in names] == [f"Bearer {KEY}", "red", "5", "websocket"]

    async def test_a_socket_is_opened_next_to_streams(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            if exchange.request.header("Upgrade") is None:
                await exchange.stream(b"data: 1\n\n")
                return
            await accept(exchange)
            await end(exchange)

        server = await raw(answer)
        client = connect()
        for _ in range(2):
            async with client.stream(server.url, b"{}") as stream:
                assert [batch async for batch in stream] == [[b"1"]]
            async with client.websocket(ws(server)) as socket:
                assert await texts(socket) == []

    async def test_a_socket_goes_through_the_proxy_which_alone_gets_its_credentials(
        self, raw: StartRaw, connect: Connect
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await accept(exchange)
            await end(exchange)

        server = await raw(answer)
        async with forward_proxy() as proxy:
            named = Proxy.at(proxy.url.replace("://", "://me:pass@"))
            async with connect(route=Route(proxy=named)).websocket(f"{ws(server)}/s") as socket:
                assert await texts(socket) == []
        [head] = proxy.heads
        assert head.startswith(f"GET {server.url}/s ")
        assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:pass').decode()}\r\n" in head


class _Renewing(Credential):
    def __init__(self) -> None:
        self.number = 1

    async def __call__(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        return {"Authorization": f"Token {self.number}"}

    def renew(self, refused: Mapping[str, str]) -> bool:
        self.number += 1
        return True


class TestHandshakes:
    """Servers that open no socket."""

    async def test_a_port_without_a_listener(self, connect: Connect) -> None:
        assert (await fault(connect(), f"ws://127.0.0.1:{refusing_port()}")).kind is ErrorClass.UNREACHABLE

    async def test_a_refusal_is_the_error_of_the_service(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.send(plain("403 Forbidden", b"no " + KEY.encode())))
        error = await fault(connect(), ws(server))
        assert (error.kind, error.detail) == (ErrorClass.UNAUTHORISED, "HTTP 403: no ***")

    async def test_a_refused_credential_is_renewed_once(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            if exchange.request.header("Authorization") != "Token 2":
                await exchange.send(plain("401 Unauthorized"))
                return
            await accept(exchange)
            await end(exchange)

        server = await raw(answer)
        async with connect(_Renewing()).websocket(ws(server)) as socket:
            assert await texts(socket) == []
        assert (await fault(connect(_Renewing()), ws(await raw(_refuse)))).kind is ErrorClass.UNAUTHORISED

    async def test_a_redirect_is_not_followed(self, raw: StartRaw, connect: Connect) -> None:
        async def never(exchange: Exchange) -> None:
            raise AssertionError("a request came through")

        other = await raw(never)
        server = await raw(lambda exchange: exchange.send(plain("307 Temporary Redirect", Location=other.url)))
        error = await fault(connect(), ws(server))
        assert error.kind is ErrorClass.NOT_SERVED
        assert "instead of a WebSocket" in error.detail

    @pytest.mark.parametrize(
        "wire",
        [
            plain("200 OK", b"hello"),
            b"not HTTP at all\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        ],
        ids=["an answer", "no HTTP", "without the key"],
    )
    async def test_what_is_no_handshake_is_refused_and_the_key_is_in_no_error(
        self, raw: StartRaw, connect: Connect, wire: bytes
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(wire)
            exchange.writer.close()

        server = await raw(answer)
        error: BaseException | None = await fault(connect(), ws(server))
        assert isinstance(error, AdapterError)
        assert error.kind is ErrorClass.CONTRACT_BROKEN
        while error is not None:
            assert KEY not in f"{error} {error!r}"
            error = error.__cause__ or error.__context__

    async def test_no_answer(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(Exchange.gone)
        assert (await fault(connect(first_byte=0.05), ws(server))).kind is ErrorClass.TIMED_OUT

    async def test_a_connection_that_ends_without_an_answer(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            exchange.writer.close()

        server = await raw(answer)
        assert (await fault(connect(), ws(server))).kind is ErrorClass.INTERRUPTED


async def _refuse(exchange: Exchange) -> None:
    await exchange.send(plain("401 Unauthorized"))


@asynccontextmanager
async def opened(raw: StartRaw, client: HttpClient, *wire: bytes, how: str = "") -> AsyncIterator[WebSocket]:
    """A socket whose server sends these bytes, and ends the connection as `how` says."""

    async def answer(exchange: Exchange) -> None:
        await accept(exchange)
        await exchange.send(*wire)
        match how:
            case "closed":
                exchange.writer.close()
            case "reset":
                exchange.reset()
            case "closing":
                assert (await received(exchange)).opcode == _CLOSE
                exchange.writer.close()
            case _:
                await exchange.gone()

    server = await raw(answer)
    async with client.websocket(ws(server)) as socket:
        yield socket


class TestFaults:
    """Sockets that end early."""

    @pytest.mark.parametrize("how", ["closed", "reset"])
    async def test_a_connection_that_is_lost(self, raw: StartRaw, connect: Connect, how: str) -> None:
        async with opened(raw, connect(), frame(_TEXT, b"1"), how=how) as socket:
            assert await anext(aiter(socket)) == "1"
            with pytest.raises(AdapterError) as caught:
                await anext(aiter(socket))
        assert caught.value.kind is ErrorClass.INTERRUPTED

    async def test_a_server_that_answers_no_ping(self, raw: StartRaw, connect: Connect) -> None:
        async with opened(raw, connect(between_bytes=0.1), frame(_TEXT, b"1")) as socket:
            assert await anext(aiter(socket)) == "1"
            with pytest.raises(AdapterError) as caught:
                await anext(aiter(socket))
            assert caught.value.kind is ErrorClass.TIMED_OUT
            with pytest.raises(AdapterError) as caught:
                await socket.send("2")
        assert caught.value.kind is ErrorClass.TIMED_OUT

    async def test_a_server_that_is_silent_but_answers_pings(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await accept(exchange)
            for _ in range(2):
                ping = await received(exchange)
                assert ping.opcode == _PING
                await exchange.send(frame(_PONG, ping.payload))
            await exchange.send(frame(_TEXT, b"1"))
            await end(exchange)

        server = await raw(answer)
        async with connect(between_bytes=1.5).websocket(ws(server)) as socket:
            assert await texts(socket) == ["1"]

    @pytest.mark.parametrize(
        ("wire", "detail"),
        [
            (frame(_BINARY, b"1"), "a frame of bytes where text is expected"),
            (frame(_TEXT, b"\xff"), "a frame is broken: Invalid UTF-8 text message"),
            (b"\xf1\x01a", "a frame is broken: Received frame with non-zero reserved bits"),
            (b"\x81\x7f" + struct.pack(">Q", EVENT_LIMIT + 1), "a frame is too large"),
        ],
        ids=["bytes", "no text", "no frame", "too large"],
    )
    async def test_a_frame_that_cannot_be_used(self, raw: StartRaw, connect: Connect, wire: bytes, detail: str) -> None:
        async with opened(raw, connect(), wire, how="closing") as socket:
            with pytest.raises(AdapterError) as caught:
                await anext(aiter(socket))
        assert (caught.value.kind, caught.value.detail) == (ErrorClass.CONTRACT_BROKEN, detail)
