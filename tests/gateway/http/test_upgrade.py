"""Requests that ask for another protocol: served as if they had not, and no body is taken for a request (RFC 9110, 7.8)."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from gateway.http.reply import Reply
from tests.gateway.http.peers import GET, Peer, served, told
from tests.running import child_gateways

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
"""As Java's HttpClient and `curl --http2` send it."""

SPELLINGS = {
    "h2c": H2C,
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "in lower case": b"connection: upgrade\r\nupgrade: h2c\r\n",
    "in upper case": b"CONNECTION: UPGRADE\r\nUPGRADE: H2C\r\n",
    "the protocol first": b"Upgrade: h2c\r\nConnection: upgrade\r\n",
    "among other options": b"Connection: keep-alive,Upgrade ,  HTTP2-Settings\r\nUpgrade: h2c\r\n",
    "on two lines": b"Connection: keep-alive\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: TLS/1.3\r\n",
    "several protocols": b"Connection: upgrade\r\nUpgrade: TLS/1.3, HTTP/2.0, , irc/6.9\r\n",
    "without a protocol": b"Connection: upgrade\r\nUpgrade:\r\n",
    "behind a header without a value": b"X-Empty:\r\nUpgrade: h2c\r\nConnection: upgrade\r\n",
    "without Connection": b"Upgrade: h2c\r\n",
    "without Upgrade": b"Connection: upgrade\r\n",
}
NEXT = b"GET /next HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(upgrade: bytes, framing: bytes = b"Content-Length: %d\r\n" % len(NEXT)) -> bytes:
    return b"POST /first?a=b HTTP/1.1\r\nHost: localhost\r\n" + upgrade + framing + b"\r\n"


def chunks(body: bytes) -> bytes:
    """The body in chunks of one byte."""
    return b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"


async def tell(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what was asked."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    asked = [scope["method"], scope["raw_path"].decode(), scope["query_string"].decode(), body.decode()]
    await Reply(msgspec.json.encode(asked))(scope, receive, send)


FIRST = ["POST", "/first", "a=b", NEXT.decode()]
SECOND = ["GET", "/next", "", ""]


async def asks(*pieces: bytes) -> list[Any]:
    """The bodies of all answers to what is sent in these pieces, of which the last is a request that ends the connection."""
    async with served(tell) as connect:
        peer = await connect()
        for piece in pieces:
            await peer.say(piece)
            await asyncio.sleep(0)
        data = await peer.rest()
    heads_and_bodies = data.split(b"HTTP/1.1 200 OK\r\n")
    assert heads_and_bodies.pop(0) == b""
    return [msgspec.json.decode(answer.partition(b"\r\n\r\n")[2]) for answer in heads_and_bodies]


LAST = b"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
THIRD = ["GET", "/last", "", ""]


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("split", ["whole", "head and body apart", "byte by byte"])
@pytest.mark.parametrize("upgrade", SPELLINGS.values(), ids=SPELLINGS)
def test_a_request_that_asks_for_another_protocol_is_served_with_its_body(
    upgrade: bytes, split: str, loop: Callable[[Coroutine[Any, Any, list[Any]]], list[Any]]
) -> None:
    head = post(upgrade)
    match split:
        case "whole":
            pieces = [head + NEXT + LAST]
        case "head and body apart":
            pieces = [head, NEXT, LAST]
        case _:
            pieces = [bytes([byte]) for byte in head + NEXT + LAST]
    assert loop(asks(*pieces)) == [FIRST, THIRD]


@pytest.mark.parametrize("split", [False, True])
async def test_a_body_in_chunks_is_read_behind_an_upgrade(split: bool) -> None:
    data = post(H2C, b"Transfer-Encoding: chunked\r\n") + chunks(NEXT) + LAST
    assert await asks(*([data[:200], data[200:400], data[400:]] if split else [data])) == [FIRST, THIRD]


async def test_requests_behind_an_upgrade_are_answered_in_their_order() -> None:
    asked = post(H2C) + NEXT
    assert await asks(asked + NEXT + asked + asked + LAST) == [FIRST, SECOND, FIRST, FIRST, THIRD]


async def test_a_request_without_a_body_that_asks_for_another_protocol_is_answered() -> None:
    websocket = NEXT.replace(b"\r\n\r\n", b"\r\n" + SPELLINGS["websocket"] + b"\r\n")
    assert await asks(websocket + websocket + LAST) == [SECOND, SECOND, THIRD]
    assert await asks(websocket, LAST) == [SECOND, THIRD]


@pytest.mark.parametrize("closing", [b"Connection: close, upgrade\r\nUpgrade: h2c\r\n", b"Connection: close\r\n" + H2C])
async def test_a_last_request_that_asks_for_another_protocol_is_served_with_its_body(closing: bytes) -> None:
    assert await asks(post(closing) + NEXT + NEXT) == [FIRST]
    assert await asks(post(closing), NEXT) == [FIRST]


async def test_a_request_of_http_1_0_that_asks_for_another_protocol_is_served_with_its_body() -> None:
    assert await asks(post(H2C).replace(b"HTTP/1.1", b"HTTP/1.0") + NEXT) == [FIRST]


async def test_a_client_that_expects_100_continue_gets_it_behind_an_upgrade() -> None:
    async with served(tell) as connect:
        peer = await connect()
        await peer.say(post(H2C + b"Expect: 100-continue\r\n"))
        assert await peer.line() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await peer.say(NEXT)
        assert await peer.answer() == (200, FIRST)


async def test_a_body_behind_an_upgrade_has_no_more_time_than_another() -> None:
    async with served(tell, body_seconds=0.05) as connect:
        peer = await connect()
        await peer.say(post(H2C) + NEXT[:5])
        assert await peer.rest() == b""


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b" folded\r\n",
    ],
)
async def test_an_ambiguous_request_is_refused_whatever_protocol_it_asks_for(framing: bytes) -> None:
    async with served(tell) as connect:
        peer = await connect()
        await peer.say(post(H2C, framing) + b"0\r\n\r\n" + NEXT)
        assert b" 400 " in (await peer.rest()).split(b"\r\n", 1)[0]


@pytest.mark.parametrize("target", [b"example.com:443", b"127.0.0.1:80", b"[::1]:80"])
@pytest.mark.parametrize("upgrade", [b"", H2C])
async def test_a_tunnel_is_refused_and_none_of_its_data_is_a_request(target: bytes, upgrade: bytes) -> None:
    head = b"CONNECT %b HTTP/1.1\r\nHost: localhost\r\n" % target + upgrade + b"\r\n"
    async with served(tell) as connect:
        for pieces in ([head + NEXT], [head, NEXT]):
            peer = await connect()
            for piece in pieces:
                await peer.say(piece)
            assert told(await peer.rest()) == (501, "this server opens no tunnel: CONNECT is not served")


async def test_a_tunnel_is_refused_behind_the_answer_to_an_earlier_request_and_nothing_in_it_is_read() -> None:
    asked: list[str] = []

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await tell(scope, receive, send)

    async with served(noted) as connect:
        peer = await connect()
        await peer.say(GET + b"CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n" + NEXT)
        assert (await peer.answer())[0] == 200
        assert told(await peer.rest())[0] == 501
    assert asked == ["/"]


async def test_http_2_from_the_first_byte_is_refused() -> None:
    async with served(tell) as connect:
        peer = await connect()
        await peer.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        assert b" 400 " in (await peer.rest()).split(b"\r\n", 1)[0]


async def test_a_field_behind_the_body_is_no_header_of_the_request() -> None:
    async def headers(scope: Scope, receive: Receive, send: Send) -> None:
        names = [name.decode() for name, _ in scope["headers"]]
        await Reply(msgspec.json.encode(names))(scope, receive, send)

    async with served(headers) as connect:
        peer = await connect()
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        await peer.say(head + b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\nHost: elsewhere\r\n\r\n")
        assert await peer.answer() == (200, ["host", "transfer-encoding"])


async def test_the_header_is_gone_and_all_others_are_as_they_were_sent() -> None:
    async def headers(scope: Scope, receive: Receive, send: Send) -> None:
        fields = [f"{name.decode()}: {value.decode('latin-1')}" for name, value in scope["headers"]]
        await Reply(msgspec.json.encode(fields))(scope, receive, send)

    async with served(headers) as connect:
        peer = await connect()
        await peer.say(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \xe9:  y \r\nx:\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n"
        )
        assert await peer.answer() == (200, ["host: localhost", "x: é:  y ", "x: ", "connection: upgrade"])


async def test_a_started_gateway_answers_a_message_that_javas_client_sends(tmp_path: Path) -> None:
    message = {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}
    call = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message})
    async with child_gateways('a: {type: python, ref: "gateway.cli.demo.agent:reply"}', tmp_path) as start:
        child = await start()
        port = int(child.url.rsplit(":", 1)[1])
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        head = b"POST /a2a/a HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: %d\r\nHost: 127.0.0.1:%d\r\n"
        rest = b"Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nA2A-Version: 1.0\r\n"
        await peer.say(head % (len(call), port) + rest + b"Content-Type: application/json\r\n\r\n")
        await peer.say(call)
        status, answer = await peer.answer()
        assert (status, answer["result"]["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")
        peer.leave()
