"""Requests over real connections: event streams, and every fault of a connection with its class."""

import asyncio
import json

import pytest

from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import KEY, Connect, answered, batches, events, fault
from tests.adapters.raw_server import EVENT_STREAM, Exchange, StartRaw, chunk, plain
from tests.support.refusing import refusing_port


class TestStreams:
    """Streams without a fault."""

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

    @pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
    async def test_a_document_of_a_type_that_is_allowed_is_the_only_event_of_its_answer(
        self, raw: StartRaw, connect: Connect, content_type: str
    ) -> None:
        wire = plain("200 OK", b'{\n\n"a": "\\ud83d"}', Content_Type=content_type)
        server = await raw(lambda exchange: exchange.send(wire[:-9], wire[-9:]))
        async with connect().stream(server.url, b"{}", documents=["application/json"]) as stream:
            assert [batch async for batch in stream] == [[b'{\n\n"a": "\\ufffd"}']]
        with pytest.raises(AdapterError) as error:
            await events(connect(), server.url)
        assert error.value.kind is ErrorClass.CONTRACT_BROKEN

    async def test_a_document_that_is_cut_is_not_given_out(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.send(plain("200 OK", b'{"a": 1}', Content_Type="application/json")[:-1])
            exchange.writer.close()

        server = await raw(answer)
        with pytest.raises(AdapterError) as error:
            async with connect().stream(server.url, b"{}", documents=["application/json"]) as stream:
                assert [batch async for batch in stream] == []
        assert error.value.kind is ErrorClass.INTERRUPTED

    async def test_the_headers_of_a_request(self, raw: StartRaw, connect: Connect) -> None:
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
        async with connect().stream(server.url, b"{}") as stream:
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
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{refusing_port()}")
        server = await raw(lambda exchange: exchange.stream(b"data: 1\n\n"))
        assert await events(connect(), server.url) == [b"1"]

    async def test_a_client_that_was_never_used_closes_and_so_does_a_closed_one(self, connect: Connect) -> None:
        client = connect()
        await client.aclose()
        await client.aclose()


class TestConnections:
    """Faults of the way to the backend."""

    async def test_a_port_without_a_listener(self, connect: Connect) -> None:
        assert (await fault(connect(), f"http://127.0.0.1:{refusing_port()}")).kind is ErrorClass.UNREACHABLE

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
            error = await fault(connect(), server.url)
            assert (error.kind, error.stale_connection) == (ErrorClass.INTERRUPTED, False)
            assert len(server.requests) == 1, "repeated by the client"

    @pytest.mark.parametrize(
        ("end", "stale"),
        [(b"", True), (b"HTTP/1.1 200 OK\r\nContent-Ty", False), (b"HTTP/1.1 100 Continue\r\n\r\n", False)],
        ids=["no byte", "half a head", "go on"],
    )
    @pytest.mark.parametrize("how", ["closed", "reset"])
    async def test_a_kept_connection_that_ends_without_an_answer_is_stale_if_it_brought_no_byte(
        self, raw: StartRaw, connect: Connect, how: str, end: bytes, stale: bool
    ) -> None:
        async def once(exchange: Exchange) -> None:
            if len(server.requests) == 1:
                await exchange.stream(b"data: 1\n\n")
                return
            await exchange.send(end)
            if how == "reset" and not end:
                exchange.reset()
            exchange.writer.close()

        server = await raw(once)
        client = connect()
        assert await events(client, server.url) == [b"1"]
        error = await fault(client, server.url)
        assert (error.kind, error.stale_connection) == (ErrorClass.INTERRUPTED, stale)
        assert (len(server.requests), server.connections) == (2, 1)

    async def test_behind_a_stale_connection_no_other_kept_one_is_used(self, raw: StartRaw, connect: Connect) -> None:
        """Two connections are kept, and the server ends each at its second request."""
        everyone = asyncio.Barrier(2)
        used: list[asyncio.StreamWriter] = []

        async def answer(exchange: Exchange) -> None:
            if exchange.writer in used:
                exchange.reset()
                return
            used.append(exchange.writer)
            if len(used) <= 2:
                await everyone.wait()
            await exchange.stream(b"data: 1\n\n")

        server = await raw(answer)
        client = connect()
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(events(client, server.url))
        assert (await fault(client, server.url)).stale_connection
        assert await events(client, server.url) == [b"1"]
        assert server.connections == 3

    async def test_a_stale_connection_is_told_from_one_that_is_silent(self, raw: StartRaw, connect: Connect) -> None:
        async def answer(exchange: Exchange) -> None:
            if len(server.requests) == 1:
                await exchange.stream(b"data: 1\n\n")
            else:
                await exchange.gone()

        server = await raw(answer)
        client = connect(first_byte=0.5)
        assert await events(client, server.url) == [b"1"]
        error = await fault(client, server.url)
        assert (error.kind, error.stale_connection) == (ErrorClass.TIMED_OUT, False)

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
            async with connect(between_bytes=0.3).stream(server.url, b"{}") as stream:
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
            async with connect().stream(server.url, b"{}") as stream:
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

    async def test_a_document_without_end_is_refused(self, raw: StartRaw, connect: Connect) -> None:
        piece = chunk(b" " * 1024 * 1024)

        async def answer(exchange: Exchange) -> None:
            await exchange.send(EVENT_STREAM.replace(b"text/event-stream", b"application/json"))
            while not exchange.writer.is_closing():
                await exchange.send(piece)

        server = await raw(answer)
        with pytest.raises(AdapterError) as error:
            async with connect().stream(server.url, b"{}", documents=["application/json"]) as stream:
                assert [batch async for batch in stream] == []
        assert error.value.kind is ErrorClass.CONTRACT_BROKEN

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
