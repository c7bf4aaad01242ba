"""Responses to clients of HTTP/1.0: raw bytes from a real server."""

import asyncio
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from gateway.http.reply import Reply
from tests.gateway.http.peers import GET, Peer, served
from tests.running import child_gateways

OLD = GET.replace(b"HTTP/1.1", b"HTTP/1.0")


async def stream(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for body in (b"data: 1\n\n", b"", b"data: 2\n\n"):
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def ask(app: object, request: bytes) -> tuple[bytes, bytes]:
    """The head and all that follows, until the server ends the connection."""
    async with served(app) as connect:  # type: ignore[arg-type]
        peer = await connect()
        await peer.say(request)
        head, _, body = (await peer.rest()).partition(b"\r\n\r\n")
    return head.lower(), body


async def test_a_stream_to_a_client_of_http_1_0_has_no_chunks_and_ends_with_its_connection() -> None:
    head, body = await ask(stream, OLD)
    assert body == b"data: 1\n\ndata: 2\n\n"
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head


async def test_an_answer_with_a_length_keeps_it() -> None:
    head, body = await ask(Reply(b"[1]"), OLD)
    assert b"content-length: 3" in head
    assert body == b"[1]"


@pytest.mark.parametrize("request_", [OLD.replace(b"GET", b"HEAD"), OLD])
async def test_an_answer_without_a_body_has_none(request_: bytes) -> None:
    head, body = await ask(stream if request_.startswith(b"HEAD") else nothing, request_)
    assert body == b""
    assert b"transfer-encoding" not in head


async def test_a_stream_to_a_client_of_http_1_1_has_chunks() -> None:
    head, body = await ask(stream, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert b"transfer-encoding: chunked" in head
    assert body == b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"


async def test_a_started_gateway_streams_to_a_client_of_http_1_0_that_sends_nothing_more(tmp_path: Path) -> None:
    message = b'{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hello"}]}}'
    async with child_gateways('a: {type: python, ref: "gateway.cli.demo.agent:reply"}', tmp_path) as start:
        child = await start()
        peer = Peer(*await asyncio.open_connection("127.0.0.1", int(child.url.rsplit(":", 1)[1])))
        await peer.say_last(
            b"POST %b/a2a/a/message:stream HTTP/1.0\r\nHost: elsewhere\r\nA2A-Version: 1.0\r\nContent-Length: %d\r\n\r\n%b"
            % (child.url.encode(), len(message), message)
        )
        head, _, body = (await peer.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"transfer-encoding" not in head.lower()
        lines = body.splitlines()
        assert all(line.startswith((b"id: ", b"data: ", b":")) or not line for line in lines)
        assert b"TASK_STATE_COMPLETED" in body
        peer.leave()
