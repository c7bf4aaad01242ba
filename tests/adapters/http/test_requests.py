"""What a request carries and what its answer gives: headers of a call, headers of an answer, whole answers, bytes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import pytest

from adapters.http.client import HttpClient, Reply
from adapters.http.named_events import ServerEvent
from adapters.http.signing import Signing
from gateway.foundation.route import Route
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import KEY, Connect, answered, batches
from tests.adapters.raw_server import EVENT_STREAM, Exchange, StartRaw, chunk, plain

Ask: TypeAlias = Callable[..., Awaitable[Any]]

_BYTES = "application/octet-stream"


async def _hello(exchange: Exchange) -> None:
    await exchange.send(plain("200 OK", b"hello", Content_Type="text/plain", X_Session="s1"))


class TestHeaders:
    """Headers of one request."""

    async def test_they_take_the_place_of_those_of_every_request(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.stream(b"data: 1\n\n"))
        given = {"authorization": "Key other", "Last-Event-ID": "7", "ACCEPT": "text/event-stream, */*"}
        async with connect().events(server.url, headers=given) as stream:
            assert [batch async for batch in stream] == [[ServerEvent("message", "", b"1")]]
        [request] = server.requests
        sent = {name.lower() for name in given} | {"content-type", "accept-encoding", "user-agent", "host"}
        names = [line.partition(":")[0].lower() for line in request.head.splitlines()[1:] if line]
        assert sorted(names) == sorted(sent)
        assert [request.header(name) for name in given] == list(given.values())

    async def test_they_do_not_take_the_place_of_those_of_the_operator(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(_hello)
        client = connect(route=Route(headers={"X-Team": "red"}))
        await client.request("GET", server.url, headers={"x-team": "blue", "X-Other": "1"})
        [request] = server.requests
        assert [request.header(name) for name in ("X-Team", "X-Other")] == ["red", "1"]

    async def test_they_go_with_one_request_only(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(_hello)
        client = connect()
        await client.request("GET", server.url, headers={"Last-Event-ID": "7"})
        await client.request("GET", server.url)
        assert [request.header("Last-Event-ID") for request in server.requests] == ["7", None]

    async def test_a_request_of_json_may_have_them(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.send(plain("200 OK", b"{}")))
        assert await connect().request_json("POST", server.url, {"a": 1}, headers={"A2A-Version": "1.0"}) == {}
        [request] = server.requests
        assert [request.header(name) for name in ("A2A-Version", "Accept")] == ["1.0", "application/json"]


class TestStreams:
    """What streams give besides their data."""

    async def test_the_headers_of_the_answer_are_known_before_its_first_event(
        self, raw: StartRaw, connect: Connect
    ) -> None:
        read = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            head = EVENT_STREAM.replace(b"\r\n\r\n", b"\r\nContent-Location: /threads/t/runs/r\r\n\r\n")
            await exchange.send(head)
            await read.wait()
            await exchange.send(chunk(b"event: metadata\nid: 1\ndata: {}\n\n"), b"0\r\n\r\n")

        server = await raw(answer)
        async with connect().events(server.url, b"{}") as stream:
            assert stream.headers["content-location"] == "/threads/t/runs/r"
            read.set()
            assert [batch async for batch in stream] == [[ServerEvent("metadata", "1", b"{}")]]

    async def test_the_bytes_of_an_answer_come_as_they_are(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            body = b"\x00\r\n\n\xff"
            await exchange.send(plain("200 OK", body, Content_Type=_BYTES))

        server = await raw(answer)
        async with connect().chunks(server.url, b"{}", content_type=_BYTES) as stream:
            assert b"".join([piece async for batch in stream for piece in batch]) == b"\x00\r\n\n\xff"
        [request] = server.requests
        assert request.header("Accept") == _BYTES

    async def test_bytes_of_another_kind_are_refused(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(_hello)
        with pytest.raises(AdapterError) as caught:
            async with connect().chunks(server.url, b"{}", content_type=_BYTES):
                pass
        assert caught.value.kind is ErrorClass.CONTRACT_BROKEN
        assert "'text/plain' instead of 'application/octet-stream'" in caught.value.detail

    async def test_a_stream_of_bytes_that_stalls(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 9\r\n\r\n1"
            )
            await exchange.gone()

        server = await raw(answer)
        with pytest.raises(AdapterError) as caught:  # noqa: PT012
            async with connect(between_bytes=0.05).chunks(server.url, content_type=_BYTES) as stream:
                assert await anext(aiter(stream)) == [b"1"]
                await anext(aiter(stream))
        assert caught.value.kind is ErrorClass.TIMED_OUT


class TestWholeAnswers:
    """`request`: status, headers and bytes."""

    async def test_an_answer_is_given_with_its_headers(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(_hello)
        reply = await connect().request("PUT", server.url, b"\x00\x01", headers={"Content-Type": _BYTES})
        assert (reply.status, reply.headers["x-session"], reply.body) == (200, "s1", b"hello")
        [request] = server.requests
        assert (request.head.split()[0], request.body) == ("PUT", b"\x00\x01")
        assert [request.header(name) for name in ("Content-Type", "Accept")] == [_BYTES, "*/*"]

    async def test_a_status_that_is_not_expected_is_the_error_of_the_service(
        self, raw: StartRaw, connect: Connect
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(plain("409 Conflict", b'{"detail":"busy ' + KEY.encode() + b'"}'))

        server = await raw(answer)
        with pytest.raises(AdapterError) as caught:
            await connect().request("POST", server.url, b"{}")
        assert (caught.value.kind, caught.value.detail) == (ErrorClass.LOCKED, "HTTP 409: busy ***")

    async def test_an_expected_status_is_an_answer(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.send(plain("404 Not Found", b"gone")))
        reply = await connect().request("GET", server.url, expected=(200, 404))
        assert (reply.status, reply.body) == (404, b"gone")

    @pytest.mark.parametrize("announced", [True, False])
    async def test_a_body_above_its_limit_is_refused(self, raw: StartRaw, connect: Connect, announced: bool) -> None:
        async def answer(exchange: Exchange) -> None:
            if announced:
                await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
                await exchange.gone()
            else:
                await exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"hello"))

        server = await raw(answer)
        with pytest.raises(AdapterError) as caught:
            await connect().request("GET", server.url, limit=4)
        assert (caught.value.kind, caught.value.detail) == (
            ErrorClass.CONTRACT_BROKEN,
            "an answer of more than 4 bytes",
        )

    async def test_a_body_of_its_limit_is_taken_and_its_connection_kept(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(_hello)
        client = connect()
        replies: list[Reply] = [await client.request("GET", server.url, limit=5) for _ in range(2)]
        assert [reply.body for reply in replies] == [b"hello", b"hello"]
        assert server.connections == 1

    async def test_streams_and_whole_answers_share_connections(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await (exchange.stream(b"data: 1\n\n") if exchange.request.body else _hello(exchange))

        server = await raw(answer)
        client = connect()
        await answered(client, server.url)
        await client.request("GET", server.url)
        assert server.connections == 1


@pytest.mark.parametrize("ask", [HttpClient.request, HttpClient.request_json], ids=["bytes", "json"])
class TestAnswersThatAreNotWhole:
    """Of `request` and of `request_json`, with the same words."""

    async def test_a_body_that_is_cut(self, raw: StartRaw, connect: Connect, ask: Ask) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}")
            exchange.writer.close()

        server = await raw(answer)
        with pytest.raises(AdapterError, match="the answer was cut: ") as caught:
            await ask(connect(), "GET", server.url)
        assert caught.value.kind is ErrorClass.INTERRUPTED

    async def test_a_body_that_stalls(self, raw: StartRaw, connect: Connect, ask: Ask) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}")
            await exchange.gone()

        server = await raw(answer)
        with pytest.raises(AdapterError, match="the answer stalled: ") as caught:
            await ask(connect(first_byte=0.5), "GET", server.url)
        assert caught.value.kind is ErrorClass.TIMED_OUT

    async def test_a_body_above_every_limit(self, raw: StartRaw, connect: Connect, ask: Ask) -> None:
        server = await raw(lambda exchange: exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4194305\r\n\r\n{}"))
        with pytest.raises(AdapterError) as caught:
            await ask(connect(), "GET", server.url)
        assert (caught.value.kind, caught.value.detail) == (
            ErrorClass.CONTRACT_BROKEN,
            "an answer of more than 4194304 bytes",
        )

    async def test_a_compressed_body_is_refused(self, raw: StartRaw, connect: Connect, ask: Ask) -> None:
        server = await raw(lambda exchange: exchange.send(plain("200 OK", b"x", Content_Encoding="gzip")))
        with pytest.raises(AdapterError) as caught:
            await ask(connect(), "GET", server.url)
        assert (caught.value.kind, caught.value.detail) == (
            ErrorClass.CONTRACT_BROKEN,
            "an answer with Content-Encoding 'gzip'",
        )

    async def test_a_redirect_is_not_followed(self, raw: StartRaw, connect: Connect, ask: Ask) -> None:
        server = await raw(lambda exchange: exchange.send(plain("302 Found", Location="https://elsewhere.invalid")))
        with pytest.raises(AdapterError, match=r"'https://elsewhere\.invalid' instead of an answer") as caught:
            await ask(connect(), "GET", server.url)
        assert caught.value.kind is ErrorClass.NOT_SERVED

    async def test_the_status_of_a_refusal_counts_although_its_body_is_cut(
        self, raw: StartRaw, connect: Connect, ask: Ask
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 409 Conflict\r\nContent-Length: 9\r\n\r\nbusy")
            exchange.writer.close()

        server = await raw(answer)
        with pytest.raises(AdapterError) as caught:
            await ask(connect(), "GET", server.url)
        assert (caught.value.kind, caught.value.detail) == (ErrorClass.LOCKED, "HTTP 409: busy")


class TestJson:
    """`request_json`: what is in the answer."""

    async def test_what_does_not_exist_is_none(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.send(plain("404 Not Found", b"no")))
        client = connect()
        assert [await client.request_json("GET", server.url) for _ in range(2)] == [None, None]
        assert server.connections == 1

    async def test_an_empty_answer_says_nothing(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n"))
        assert await connect().request_json("DELETE", server.url) == {}

    async def test_an_answer_that_is_no_json(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.send(plain("200 OK", b"<html>")))
        with pytest.raises(AdapterError, match="an answer that is no JSON: ") as caught:
            await connect().request_json("GET", server.url)
        assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


async def _by_stream(client: HttpClient, url: str) -> object:
    return await batches(client, url)


async def _by_bytes(client: HttpClient, url: str) -> object:
    return await client.request("GET", url)


async def _by_json(client: HttpClient, url: str) -> object:
    return await client.request_json("GET", url)


async def _by_websocket(client: HttpClient, url: str) -> object:
    async with client.websocket(url) as socket:
        return socket


async def _unsigned(method: str, url: str, body: bytes) -> Mapping[str, str]:
    return {}


class TestAddresses:
    """Addresses that a backend gives, such as those of files, cannot be known to be any."""

    @pytest.mark.parametrize("signing", [None, _unsigned], ids=["plain", "signed"])
    @pytest.mark.parametrize("ask", [_by_stream, _by_bytes, _by_json, _by_websocket])
    @pytest.mark.parametrize(
        ("address", "words"),
        [
            ("http://me:hidden@127.0.0.1:1/", "an address with credentials, at 127.0.0.1"),
            ("http://hidden@127.0.0.1:1/", "an address with credentials, at 127.0.0.1"),
            ("http://me:hidden/@127.0.0.1:1/", "an address that is none"),
            ("http://127.0.0.1:port/", "an address that is none"),
            ("http://[hidden/", "an address that is none"),
            ("/path", "an address that is none"),
            ("ftp://127.0.0.1/", "an address that is none"),
        ],
    )
    async def test_what_is_no_address_is_an_answer_that_cannot_be_used(
        self,
        connect: Connect,
        ask: Callable[[HttpClient, str], Awaitable[object]],
        signing: Signing | None,
        address: str,
        words: str,
    ) -> None:
        with pytest.raises(AdapterError) as caught:
            await ask(connect(signing), address)
        assert (caught.value.kind, caught.value.detail) == (ErrorClass.CONTRACT_BROKEN, words)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
