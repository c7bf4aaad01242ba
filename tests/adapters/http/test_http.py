"""The HTTP module of the adapters: events out of any stream of bytes, and every fault with its class."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from typing import Any, TypeAlias

import pytest

from adapters.http.client import HttpClient
from adapters.http.settings import Timeouts
from adapters.http.sse import EVENT_LIMIT, STREAM_LIMIT, EventReader, StreamTooLarge
from adapters.openai.failures import OpenAIFailures
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.raw_server import EVENT_STREAM, Exchange, StartRaw, chunk, free_port, plain

KEY = "sk-proj-0123456789abcdef"
Connect: TypeAlias = Callable[..., HttpClient]


@pytest.fixture
async def connect() -> AsyncGenerator[Connect]:
    clients: list[HttpClient] = []

    def connected(**timeouts: float) -> HttpClient:
        patient = Timeouts.model_construct(connect=5.0, first_byte=30.0, between_bytes=30.0)
        client = HttpClient(
            patient.model_copy(update=timeouts), OpenAIFailures((KEY,)), {"Authorization": f"Bearer {KEY}"}
        )
        clients.append(client)
        return client

    yield connected
    for client in clients:
        await client.aclose()


async def batches(client: HttpClient, url: str, body: bytes = b"{}", **options: Any) -> list[list[bytes]]:
    async with client.post_stream(url, body, **options) as stream:
        return [batch async for batch in stream]


async def events(client: HttpClient, url: str) -> list[bytes]:
    return [data for batch in await batches(client, url) for data in batch]


async def answered(client: HttpClient, url: str) -> None:
    """A call as adapters make it: they stop at the event that ends the answer."""
    async with client.post_stream(url, b"{}") as stream:
        async for _ in stream:
            stream.answered = True
            return


async def fault(client: HttpClient, url: str, **options: Any) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await batches(client, url, **options)
    return caught.value


class TestEventReader:
    """Bytes -> data of events."""

    @pytest.mark.parametrize(
        ("wire", "expected"),
        [
            pytest.param(b'data: {"a":1}\n\n', [b'{"a":1}'], id="an event"),
            pytest.param(b'event: x\ndata: {"a":1}\n\ndata: 2\n\n', [b'{"a":1}', b"2"], id="with a name and without"),
            pytest.param(b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"], id="CRLF"),
            pytest.param(b"data: 1\r\rdata: 2\r\r", [b"1", b"2"], id="CR"),
            pytest.param(b"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\n", [b"1", b"2", b"3"], id="line ends mixed"),
            pytest.param(b": ping\n\ndata: 1\n\n: ping\n\n", [b"1"], id="comments"),
            pytest.param(b"data: 1\n: in between\nid: 7\nretry: 3\n\n", [b"1"], id="other fields behind"),
            pytest.param(b"id: 7\nevent: x\ndata: 1\n\n", [b"1"], id="other fields before"),
            pytest.param(b"data: [1,\ndata: 2]\n\n", [b"[1,\n2]"], id="data of several lines"),
            pytest.param(b"data:1\n\ndata:  2\n\n", [b"1", b" 2"], id="one space belongs to the field"),
            pytest.param(b"\xef\xbb\xbfdata: 1\n\n", [b"1"], id="BOM"),
            pytest.param(b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [b"1"], id="BOM where the stream does not begin"),
            pytest.param(b"\n\n\ndata: 1\n\n\n\n\ndata: 2\n\n", [b"1", b"2"], id="more empty lines than needed"),
            pytest.param(b"event: ping\n\nevent: x\nid: 1\n\ndata\n\ndata:\n\ndata: 1\n\n", [b"1"], id="no data"),
            pytest.param("data: é\u2028🌍\n\n".encode(), ["é\u2028🌍".encode()], id="text of several bytes"),
            pytest.param(b"data: {}\n\ndata: [DONE]\n\n", [b"{}", b"[DONE]"], id="the last word of some servers"),
        ],
    )
    def test_it_makes_no_difference_where_the_stream_is_cut(self, wire: bytes, expected: list[bytes]) -> None:
        def read(cuts: list[int]) -> list[bytes]:
            reader = EventReader()
            pieces = [wire[start:end] for start, end in pairwise([0, *cuts, len(wire)])]
            return [data for piece in pieces if piece for data in reader.feed(piece)]

        assert read([]) == expected
        assert read(list(range(1, len(wire)))) == expected
        for cut in range(1, len(wire)):
            assert read([cut]) == expected, wire[:cut]

    def test_what_one_read_completes_comes_at_once(self) -> None:
        reader = EventReader()
        assert reader.feed(b"data: 1\n\ndata: 2\n\nda") == [b"1", b"2"]
        assert reader.feed(b"ta: 3\n") == []
        assert reader.feed(b"\ndata: 4\r") == [b"3"]
        assert reader.feed(b"\r") == [b"4"]

    @pytest.mark.parametrize(
        ("rest", "last"),
        [
            (b"", b""),
            (b"\n", b""),
            (b'data: {"a":1}', b'{"a":1}'),
            (b'event: x\ndata: {"a":1}\n', b'{"a":1}'),
            (b"data: [DONE]", b"[DONE]"),
            (b'data: {"a":{"b":1}', b""),
            (b"data: " + b"[" * 20_000, b""),
            (b"data: {}\ndat", b"{}"),
        ],
    )
    def test_the_empty_line_behind_the_last_event_may_be_missing(self, rest: bytes, last: bytes) -> None:
        reader = EventReader()
        assert reader.feed(b"data: 1\n\n" + rest) == [b"1"]
        assert reader.finish() == last

    def test_an_event_may_be_large_but_not_without_end(self) -> None:
        piece = b"x" * 1024 * 1024
        reader = EventReader()
        reader.feed(b"data: ")
        for _ in range(8):
            reader.feed(piece)
        [data] = reader.feed(b"\n\n")
        assert len(data) == 8 * len(piece)
        with pytest.raises(StreamTooLarge):  # noqa: PT012
            for _ in range(EVENT_LIMIT // len(piece) + 1):
                reader.feed(piece)

    def test_a_stream_of_small_events_is_not_endless_either(self) -> None:
        events = (b": %s\n\n" % (b"x" * 1000)) * 1000
        reader = EventReader()
        with pytest.raises(StreamTooLarge):  # noqa: PT012
            for _ in range(STREAM_LIMIT // len(events) + 1):
                assert reader.feed(events) == []


class TestStreams:
    """What arrives when all goes well."""

    async def test_events_of_one_write_come_together(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.stream(b"data: 1\n\ndata: 2\n\ndata: 3\n\n")

        server = await raw(answer)
        assert await batches(connect(), server.url) == [[b"1", b"2", b"3"]]

    async def test_a_stream_may_come_byte_by_byte(self, raw: StartRaw, connect: Connect) -> None:
        wire = 'event: x\r\ndata: {"text":"é🌍"}\r\n\r\n: ping\r\n\r\ndata: [DONE]\r\n\r\n'.encode()

        async def answer(exchange: Exchange) -> None:
            await exchange.stream(*(bytes([byte]) for byte in wire))

        server = await raw(answer)
        assert await events(connect(), server.url) == ['{"text":"é🌍"}'.encode(), b"[DONE]"]

    async def test_the_end_of_the_connection_may_be_the_end_of_the_stream(
        self, raw: StartRaw, connect: Connect
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b'data: {"a":1}')
            exchange.writer.close()

        server = await raw(answer)
        assert await events(connect(), server.url) == [b'{"a":1}']

    @pytest.mark.parametrize("content_type", ["text/event-stream; charset=utf-8", "Text/Event-Stream", None])
    async def test_the_content_type_may_be_written_in_any_way_or_be_missing(
        self, raw: StartRaw, connect: Connect, content_type: str | None
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            headers = {"Content_Type": content_type} if content_type else {}
            await exchange.send(plain("200 OK", b"data: 1\n\n", **headers))

        server = await raw(answer)
        assert await events(connect(), server.url) == [b"1"]

    async def test_a_request_says_what_it_is_and_who_asks(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.stream())
        await batches(connect(), f"{server.url}/v1/responses", b'{"a":1}')
        [request] = server.requests
        assert request.head.splitlines()[0] == "POST /v1/responses HTTP/1.1"
        assert request.body == b'{"a":1}'
        names = ("Authorization", "Content-Type", "Accept", "Accept-Encoding", "User-Agent")
        assert [request.header(name) for name in names] == [
            f"Bearer {KEY}",
            "application/json",
            "text/event-stream",
            "identity",
            "a2a-gateway",
        ]

    async def test_a_large_body_is_sent_whole(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(lambda exchange: exchange.stream())
        body = json.dumps({"data": "x" * 3_000_000}).encode()
        await batches(connect(), server.url, body)
        assert server.requests[0].body == body

    async def test_a_connection_is_used_again_after_a_whole_answer(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.stream(b'data: {"type":"end"}\n\n', b"data: [DONE]\n\n")

        server = await raw(answer)
        client = connect()
        await answered(client, server.url)
        await answered(client, server.url)
        assert (len(server.requests), server.connections) == (2, 1)

    async def test_a_whole_answer_does_not_wait_for_a_server_that_keeps_its_stream_open(
        self, raw: StartRaw, connect: Connect
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(EVENT_STREAM, chunk(b"data: 1\n\n"))
            await exchange.gone()

        server = await raw(answer)
        await answered(connect(), server.url)

    async def test_closing_in_mid_stream_drops_the_connection(self, raw: StartRaw, connect: Connect) -> None:
        released = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            await exchange.send(EVENT_STREAM, chunk(b"data: 1\n\n"))
            await exchange.gone()
            released.set()

        server = await raw(answer)
        async with connect().post_stream(server.url, b"{}") as stream:
            assert await anext(aiter(stream)) == [b"1"]
        await released.wait()

    async def test_many_streams_are_open_at_once(self, raw: StartRaw, connect: Connect) -> None:
        count, arrived = 120, asyncio.Semaphore(0)
        everyone = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            arrived.release()
            await everyone.wait()
            await exchange.stream(b"data: 1\n\n")

        server = await raw(answer)
        client = connect()
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(events(client, server.url))
            for _ in range(count):
                await arrived.acquire()
            everyone.set()

    async def test_cookies_are_not_carried_from_one_conversation_to_another(
        self, raw: StartRaw, connect: Connect
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            headers = {"Content_Type": "text/event-stream", "Set_Cookie": "session=1"}
            await exchange.send(plain("200 OK", b"data: 1\n\n", **headers))

        server = await raw(answer)
        client = connect()
        await batches(client, server.url)
        await batches(client, server.url)
        assert [request.header("Cookie") for request in server.requests] == [None, None]

    async def test_proxies_of_the_environment_are_not_used(
        self, raw: StartRaw, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
        server = await raw(lambda exchange: exchange.stream(b"data: 1\n\n"))
        assert await events(connect(), server.url) == [b"1"]

    async def test_a_client_that_was_never_used_closes_and_so_does_a_closed_one(self, connect: Connect) -> None:
        client = connect()
        await client.aclose()
        await client.aclose()


class TestConnections:
    """Faults of the way to the backend."""

    async def test_nobody_listens(self, connect: Connect) -> None:
        assert (await fault(connect(), f"http://127.0.0.1:{free_port()}")).kind is ErrorClass.UNREACHABLE

    async def test_no_such_host(self, connect: Connect) -> None:
        assert (await fault(connect(), "http://nowhere.invalid")).kind is ErrorClass.UNREACHABLE

    async def test_no_tls_where_tls_is_expected(self, raw: StartRaw, connect: Connect) -> None:
        async def never(exchange: Exchange) -> None:
            raise AssertionError("a request came through")

        server = await raw(never)
        url = server.url.replace("http:", "https:")
        assert (await fault(connect(connect=0.2), url)).kind is ErrorClass.UNREACHABLE

    async def test_a_fresh_connection_that_ends_without_an_answer_may_have_brought_the_request(
        self, raw: StartRaw, connect: Connect
    ) -> None:
        async def closed(exchange: Exchange) -> None:
            exchange.writer.close()

        async def reset(exchange: Exchange) -> None:
            exchange.reset()

        for answer in (closed, reset):
            server = await raw(answer)
            assert (await fault(connect(), server.url)).kind is ErrorClass.INTERRUPTED
            assert len(server.requests) == 1, "repeated by the client"

    async def test_a_kept_connection_that_ends_without_an_answer_may_have_brought_the_request(
        self, raw: StartRaw, connect: Connect
    ) -> None:
        async def once(exchange: Exchange) -> None:
            if len(server.requests) == 1:
                await exchange.stream(b"data: 1\n\n")
            else:
                exchange.reset()

        server = await raw(once)
        client = connect()
        assert await events(client, server.url) == [b"1"]
        assert (await fault(client, server.url)).kind is ErrorClass.INTERRUPTED
        assert (len(server.requests), server.connections) == (2, 1)

    async def test_no_first_byte(self, raw: StartRaw, connect: Connect) -> None:
        server = await raw(Exchange.gone)
        error = await fault(connect(first_byte=0.05), server.url)
        assert error.kind is ErrorClass.TIMED_OUT

    async def test_no_further_byte(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(EVENT_STREAM, chunk(b"data: 1\n\n"))
            await exchange.gone()

        server = await raw(answer)
        seen = []
        with pytest.raises(AdapterError) as caught:  # noqa: PT012
            async with connect(between_bytes=0.05).post_stream(server.url, b"{}") as stream:
                async for batch in stream:
                    seen.extend(batch)
        assert (seen, caught.value.kind) == ([b"1"], ErrorClass.TIMED_OUT)

    @pytest.mark.parametrize("how", ["closed", "reset", "chunks broken", "length missed"])
    async def test_a_stream_is_cut(self, raw: StartRaw, connect: Connect, how: str) -> None:
        read = asyncio.Event()

        async def answer(exchange: Exchange) -> None:
            head = EVENT_STREAM
            if how == "length missed":
                head = head.replace(b"Transfer-Encoding: chunked", b"Content-Length: 1000")
            event = b"data: 1\n\n"
            await exchange.send(head, event if how == "length missed" else chunk(event))
            await read.wait()
            if how == "chunks broken":
                await exchange.send(b"no length\r\n")
            if how == "reset":
                exchange.reset()
            exchange.writer.close()

        server = await raw(answer)
        with pytest.raises(AdapterError) as caught:  # noqa: PT012
            async with connect().post_stream(server.url, b"{}") as stream:
                async for batch in stream:
                    assert batch == [b"1"]
                    read.set()
        assert caught.value.kind is ErrorClass.INTERRUPTED

    async def test_an_event_without_end_is_refused(self, raw: StartRaw, connect: Connect) -> None:
        piece = chunk(b"x" * 1024 * 1024)

        async def answer(exchange: Exchange) -> None:
            await exchange.send(EVENT_STREAM, chunk(b"data: "))
            while not exchange.writer.is_closing():
                await exchange.send(piece)

        server = await raw(answer)
        assert (await fault(connect(), server.url)).kind is ErrorClass.CONTRACT_BROKEN

    @pytest.mark.parametrize("wire", [b"not HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000])
    async def test_an_answer_that_is_not_http_is_refused_and_the_key_is_in_no_error(
        self, raw: StartRaw, connect: Connect, wire: bytes
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(wire)
            exchange.writer.close()

        server = await raw(answer)
        error: BaseException | None = await fault(connect(), server.url)
        assert isinstance(error, AdapterError)
        assert error.kind is ErrorClass.CONTRACT_BROKEN
        while error is not None:
            assert KEY not in f"{error} {error!r}"
            error = error.__cause__ or error.__context__


def told(**error: Any) -> bytes:
    return json.dumps({"error": error}).encode()


class TestAnswers:
    """HTTP answers that are no stream, and their classes."""

    @pytest.mark.parametrize(
        ("status", "body", "kind"),
        [
            ("400 Bad Request", told(message="bad", code="invalid_type", param="input"), ErrorClass.REJECTED),
            ("400 Bad Request", told(message="gone", code="previous_response_not_found"), ErrorClass.HANDLE_NOT_FOUND),
            ("404 Not Found", b'{"detail":"Response \'resp_1\' not found."}', ErrorClass.HANDLE_NOT_FOUND),
            ("404 Not Found", told(message="no resp_1 here"), ErrorClass.HANDLE_NOT_FOUND),
            ("404 Not Found", told(message="The model does not exist", code="model_not_found"), ErrorClass.REJECTED),
            ("404 Not Found", b"", ErrorClass.REJECTED),
            ("400 Bad Request", told(message="in use", code="conversation_locked"), ErrorClass.LOCKED),
            ("409 Conflict", told(message="locked"), ErrorClass.LOCKED),
            ("401 Unauthorized", told(message="who?"), ErrorClass.UNAUTHORISED),
            ("403 Forbidden", b"<html>no</html>", ErrorClass.UNAUTHORISED),
            ("429 Too Many Requests", told(message="slow down"), ErrorClass.RATE_LIMITED),
            ("429 Too Many Requests", told(message="pay", code="insufficient_quota"), ErrorClass.REJECTED),
            ("500 Oops", told(message="limit", code="rate_limit_exceeded"), ErrorClass.RATE_LIMITED),
            ("400 Bad Request", told(message="long", code="context_length_exceeded"), ErrorClass.OVERFLOW),
            ("400 Bad Request", told(message="long", type="exceed_context_size_error", code=400), ErrorClass.OVERFLOW),
            (
                "400 Bad Request",
                b'{"object":"error","message":"This model\'s maximum context length is 8 tokens.","code":400}',
                ErrorClass.OVERFLOW,
            ),
            ("413 Too Large", b"", ErrorClass.OVERFLOW),
            (
                "400 Bad Request",
                told(message="no", code="unsupported_parameter", param="previous_response_id"),
                ErrorClass.STORAGE_DISABLED,
            ),
            (
                "400 Bad Request",
                told(message="Previous response cannot be used for this organization due to Zero Data Retention"),
                ErrorClass.STORAGE_DISABLED,
            ),
            ("400 Bad Request", told(message="no", code="unsupported_parameter", param="top_p"), ErrorClass.REJECTED),
            ("422 Unprocessable", b'{"detail":[{"loc":["body"],"msg":"field required"}]}', ErrorClass.REJECTED),
            ("500 Oops", b'{"detail":"Internal server error"}', ErrorClass.BACKEND_FAILED),
            ("502 Bad Gateway", b"<html><h1>502</h1></html>", ErrorClass.BACKEND_FAILED),
            ("503 Unavailable", b"", ErrorClass.BACKEND_FAILED),
            ("529 Overloaded", b"", ErrorClass.RATE_LIMITED),
            ("500 Oops", b'{"error":null}', ErrorClass.BACKEND_FAILED),
            ("500 Oops", b'{"error":"a bare text"}', ErrorClass.BACKEND_FAILED),
            ("500 Oops", b"\xff\xfe[" + b"[" * 30_000, ErrorClass.BACKEND_FAILED),
            ("200 OK", b"<!DOCTYPE html><html></html>", ErrorClass.CONTRACT_BROKEN),
            ("200 OK", told(message="limit", code="rate_limit_exceeded"), ErrorClass.RATE_LIMITED),
            ("204 No Content", b"", ErrorClass.CONTRACT_BROKEN),
            ("304 Not Modified", b"", ErrorClass.CONTRACT_BROKEN),
        ],
    )
    async def test_the_code_decides_then_the_status(
        self, raw: StartRaw, connect: Connect, status: str, body: bytes, kind: ErrorClass
    ) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(plain(status, body, Content_Type="application/json"))

        server = await raw(answer)
        error = await fault(connect(), server.url, handle="resp_1")
        assert error.kind is kind
        assert status[:3] in error.detail
        assert error.retry_after is None

    @pytest.mark.parametrize(
        ("status", "headers", "body", "down"),
        [
            ("502 Bad Gateway", {}, b"<html><h1>502</h1></html>", True),
            ("503 Unavailable", {}, b"", True),
            ("504 Gateway Timeout", {}, b"", True),
            ("503 Unavailable", {"Retry_After": "2"}, b"", False),
            ("503 Unavailable", {}, told(message="no", code="slow_down"), False),
            ("500 Oops", {}, b"", False),
            ("529 Overloaded", {}, b"", False),
            ("429 Too Many Requests", {}, b"", False),
        ],
    )
    async def test_whoever_stands_before_a_service_says_that_it_is_down(
        self, raw: StartRaw, connect: Connect, status: str, headers: dict[str, str], body: bytes, down: bool
    ) -> None:
        server = await raw(lambda exchange: exchange.send(plain(status, body, **headers)))
        assert (await fault(connect(), server.url)).backend_down is down

    async def test_404_says_nothing_about_a_handle_that_was_not_sent(self, raw: StartRaw, connect: Connect) -> None:
        body = b'{"detail":"Response not found"}'
        server = await raw(lambda exchange: exchange.send(plain("404 Not Found", body)))
        assert (await fault(connect(), server.url)).kind is ErrorClass.REJECTED

    @pytest.mark.parametrize(
        ("status", "headers", "seconds"),
        [
            ("429 Too Many Requests", {"Retry_After": "7"}, 7.0),
            ("429 Too Many Requests", {"Retry_After": " 0.5 "}, 0.5),
            (
                "429 Too Many Requests",
                {"Retry_After": "Fri, 20 Nov 2026 12:00:30 GMT", "Date": "Fri, 20 Nov 2026 12:00:00 GMT"},
                30.0,
            ),
            (
                "429 Too Many Requests",
                {"Retry_After": "Fri, 20 Nov 2026 11:00:00 GMT", "Date": "Fri, 20 Nov 2026 12:00:00 -0000"},
                0.0,
            ),
            ("429 Too Many Requests", {"Retry_After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
            ("429 Too Many Requests", {"Retry_After": "soon"}, None),
            ("429 Too Many Requests", {"Retry_After": "-1"}, None),
            ("503 Unavailable", {"Retry_After": "2"}, 2.0),
        ],
    )
    async def test_the_time_to_wait_is_in_seconds(
        self, raw: StartRaw, connect: Connect, status: str, headers: dict[str, str], seconds: float | None
    ) -> None:
        server = await raw(lambda exchange: exchange.send(plain(status, b"{}", **headers)))
        error = await fault(connect(), server.url)
        assert (error.kind, error.retry_after) == (ErrorClass.RATE_LIMITED, seconds)

    async def test_a_redirect_is_not_followed_and_the_key_stays_here(self, raw: StartRaw, connect: Connect) -> None:
        elsewhere = await raw(lambda exchange: exchange.stream(b"data: 1\n\n"))
        redirect = plain("307 Temporary Redirect", Location=f"{elsewhere.url}/v1")
        server = await raw(lambda exchange: exchange.send(redirect))
        error = await fault(connect(), server.url)
        assert error.kind is ErrorClass.CONTRACT_BROKEN
        assert elsewhere.url in error.detail
        assert elsewhere.connections == 0

    async def test_a_compressed_answer_is_refused_unread(self, raw: StartRaw, connect: Connect) -> None:
        for status, kind in (("200 OK", ErrorClass.CONTRACT_BROKEN), ("500 Oops", ErrorClass.BACKEND_FAILED)):
            bomb = plain(status, b"\x1f\x8b", Content_Type="text/event-stream", Content_Encoding="gzip")
            server = await raw(lambda exchange, bomb=bomb: exchange.send(bomb))  # type: ignore[misc]
            assert (await fault(connect(), server.url)).kind is kind

    async def test_an_error_without_end_is_read_only_at_its_beginning(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not exchange.writer.is_closing():
                await exchange.send(chunk(b"word " * 10_000))

        server = await raw(answer)
        error = await fault(connect(), server.url)
        assert error.kind is ErrorClass.BACKEND_FAILED
        assert error.detail.startswith("HTTP 500: word word")
        assert len(error.detail) == 300

    async def test_an_error_that_is_cut_still_has_its_status(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(b'HTTP/1.1 401 No\r\nContent-Length: 1000\r\n\r\n{"error":')
            exchange.writer.close()

        server = await raw(answer)
        assert (await fault(connect(), server.url)).kind is ErrorClass.UNAUTHORISED

    @pytest.mark.parametrize("quoted", [KEY, "sk-proj-************cdef", f"Bearer {KEY}, twice: {KEY}"])
    async def test_the_key_is_masked_however_it_is_quoted(self, raw: StartRaw, connect: Connect, quoted: str) -> None:
        body = told(message=f"Incorrect API key provided: {quoted} .\nFind yours", code="invalid_api_key")
        server = await raw(lambda exchange: exchange.send(plain("401 Unauthorized", body)))
        detail = (await fault(connect(), server.url)).detail
        assert "sk-proj" not in detail
        assert "cdef" not in detail
        assert detail.startswith("HTTP 401: invalid_api_key: Incorrect API key provided: ")
        assert detail.endswith("*** . Find yours")
