"""Connections, and untrusted JSON."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.client.transport import (
    TlsFailed,
    Unreachable,
    decode,
    http_errors,
    json_at,
    objects,
    open_http,
    refused_from,
    text_at,
)
from tests.adapters.raw_server import Exchange, RawServer, plain
from tests.support.certificates import certificate, server_context
from tests.support.forward_proxy import forward_proxy
from tests.support.refusing import refusing_port

Json = Any


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/x", "http://127.0.0.1:1/x cannot be reached: connection refused"),
        ("http://nowhere.invalid/", "http://nowhere.invalid/ cannot be reached: there is no such host"),
        ("ftp://x", "ftp://x is no address that can be called: "),
        ("http://[::1", "http://[::1 is no address that can be called: "),
    ],
)
async def test_an_unreachable_address_is_reported_in_plain_words(url: str, why: str) -> None:
    async with open_http("http://127.0.0.1") as http:
        with pytest.raises(Unreachable) as caught, http_errors(url):
            await http.get(url)
    assert str(caught.value).startswith(why)


@asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[str]:
    """A server that sends `answer` to one request and then closes; without an answer it stays open."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if not answer:
            await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await ended.wait()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            "it closed the connection before its answer was complete",
        ),
        (b"", "it went silent"),
    ],
)
async def test_an_incomplete_answer_is_reported(answer: bytes, why: str) -> None:
    async with listening(answer) as url, open_http(url) as http:
        with pytest.raises(Unreachable) as caught, http_errors(url):
            await http.get(url, timeout=0.2)
    assert str(caught.value) == f"{url} cannot be reached: {why}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_no_proxy_is_used_for_this_machine(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    port = refusing_port()
    async with open_http(f"http://{host}:{port}") as http:
        with pytest.raises(Unreachable, match="connection refused"), http_errors(host):
            await http.get(f"http://{host}:{port}")
    async with open_http("http://agent.example") as http:
        with pytest.raises(Unreachable, match="there is no such host"), http_errors("http://agent.example"):
            await http.get("http://agent.example")


async def test_a_host_of_which_no_address_lets_connect_is_said_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    port = refusing_port()
    known = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: known)
    async with open_http("http://two.example") as http:
        with pytest.raises(Unreachable, match="connection refused"), http_errors("http://two.example"):
            await http.get(f"http://two.example:{port}")


def test_untrusted_json_is_read_safely() -> None:
    value = {"a": {"b": "text", "c": 1, "d": ""}, "list": [1, {"x": 1}, None]}
    found = [json_at(value, "a", "b"), json_at(value, "a", "b", "c"), json_at(value, "z"), json_at([1], "0")]
    assert found == ["text", None, None, None]
    assert [text_at(value, "a", key) for key in "bcd"] == ["text", None, None]
    assert [objects(value, "list"), objects(value, "a"), objects(None, "a")] == [[{"x": 1}], [], []]


@pytest.mark.parametrize("text", ["", "{", b"\xff", "[" * 100_000])
def test_malformed_json_is_none(text: str | bytes) -> None:
    assert decode(text) is None


@pytest.mark.parametrize("trusts", [True, False])
async def test_an_authority_that_is_named_is_trusted(tmp_path: Path, *, trusts: bool) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain("200 OK", b"{}"))

    file = certificate(tmp_path, "localhost")
    raw = RawServer(answer)
    async with await asyncio.start_server(raw.serve_connection, "127.0.0.1", 0, ssl=server_context(file)) as server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        async with open_http(url, ca=file if trusts else None) as http:
            if trusts:
                assert (await http.get(url)).status_code == 200
            else:
                told = r"certificate is not trusted: self-signed certificate; .* --ca"
                with pytest.raises(TlsFailed, match=told), http_errors(url):
                    await http.get(url)
        await raw.stop()


@pytest.mark.parametrize("safe", [True, False])
async def test_an_address_that_begins_with_the_wrong_scheme_is_told(tmp_path: Path, *, safe: bool) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):
            writer.write(plain("400 Bad Request"))
        writer.close()

    file = certificate(tmp_path, "localhost")
    context = server_context(file) if safe else None
    scheme, other = ("https", "http") if safe else ("http", "https")
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        url = f"{other}://localhost:{server.sockets[0].getsockname()[1]}"
        async with open_http(url, ca=file) as http:
            with pytest.raises(Unreachable) as caught, http_errors(url):
                await http.get(url)
    assert str(caught.value).endswith(f"; does its address begin with {scheme}:// and not with {other}://?")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            b"\x15\x03\x03\x00\x02\x02\x16",
            "what it answers is no HTTP; does its address begin with https:// and not with http://?",
        ),
        (
            b"220 mail.example ESMTP\r\n\r\n",
            "what it answers is no HTTP; does its address begin with https:// and not with http://?",
        ),
    ],
)
async def test_an_answer_that_is_no_http_is_told(answer: bytes, why: str) -> None:
    async with listening(answer) as url, open_http(url) as http:
        with pytest.raises(Unreachable) as caught, http_errors(url):
            await http.get(url)
    assert str(caught.value) == f"{url} cannot be reached: {why}"


async def test_an_authority_is_trusted_although_the_first_address_needs_none(tmp_path: Path) -> None:
    """A card at an http address may name an https address."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain("200 OK", b"{}"))

    file = certificate(tmp_path, "localhost")
    raw = RawServer(answer)
    async with await asyncio.start_server(raw.serve_connection, "127.0.0.1", 0, ssl=server_context(file)) as server:
        async with open_http("http://localhost", ca=file) as http:
            url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
            assert (await http.get(url)).status_code == 200
        await raw.stop()


async def test_requests_go_through_the_proxy_that_is_named() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain("200 OK", b"{}"))

    raw = RawServer(answer)
    async with await asyncio.start_server(raw.serve_connection, "127.0.0.1", 0) as server, forward_proxy() as proxy:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/card"
        async with open_http(url, proxy=proxy.url) as http:
            assert (await http.get(url)).status_code == 200
        await raw.stop()
    assert proxy.heads[0].startswith(f"GET {url} ")


async def test_a_server_that_wants_tls_and_says_so_is_told_from_one_that_refuses() -> None:
    body = b"Client sent an HTTP request to an HTTPS server.\n"
    head = b"HTTP/1.0 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with listening(head + body) as url, open_http(url) as http:
        refused = refused_from(await http.get(url), None)
    hint = "does its address begin with https:// and not with http://?"
    assert str(refused) == f"{url} answered HTTP 400 Bad Request; {hint}"
