"""The HTTP client with a tap: what it hears from a recording is what it heard from the server."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from adapters.http.client import HttpClient
from adapters.http.settings import Timeouts
from adapters.openai.failures import OpenAIFailures
from gateway.foundation.clock import Clock
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.wire import End, Tap, offered
from gateway.recording.player import Replay
from gateway.recording.recorder import Recording
from gateway.recording.recordings import Recordings
from tests.adapters.http.conftest import batches, fault
from tests.adapters.raw_server import EVENT_STREAM, Exchange, RawServer, StartRaw, chunk, plain
from tests.support.refusing import refusing_port

Use = Callable[[HttpClient], Awaitable[object]]


def client(tap: Tap | None, **timeouts: float) -> HttpClient:
    patient = Timeouts.model_construct(connect=5.0, first_byte=30.0, between_bytes=30.0).model_copy(update=timeouts)
    with offered(tap):
        return HttpClient(patient, OpenAIFailures(()), {"Authorization": "Bearer sk-0123456789"})


async def both(folder: Path, use: Use, server: RawServer | None = None, **timeouts: float) -> tuple[object, object]:
    """What `use` gives against the server, and against the recording of it when the server is gone."""
    with Recording(folder, Clock()) as recording:
        http = client(recording.tap("a"), **timeouts)
        first = await use(http)
        await http.aclose()
    if server is not None:
        await server.stop()
    http = client(Replay(folder, 0).tap("a"), **timeouts)
    second = await use(http)
    await http.aclose()
    return first, second


async def test_a_stream_is_the_same_and_comes_in_the_same_reads(raw: StartRaw, tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(EVENT_STREAM)
        for piece in (b"data: 1\n\ndata: 2\n\n", b"data: 3\n\nda", b"ta: [DONE]\n\n"):
            await exchange.send(chunk(piece))
        await exchange.send(b"0\r\n\r\n")

    server = await raw(answer)
    first, second = await both(tmp_path, lambda http: batches(http, server.url), server)
    assert first == second
    assert isinstance(first, list)
    assert [data for batch in first for data in batch] == [b"1", b"2", b"3", b"[DONE]"]


async def test_a_cut_is_cut_again(raw: StartRaw, tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(EVENT_STREAM, chunk(b"data: 1\n\ndata: 2"))
        exchange.writer.close()

    server = await raw(answer)
    first, second = await both(tmp_path, lambda http: fault(http, server.url), server)
    assert isinstance(first, AdapterError)
    assert isinstance(second, AdapterError)
    assert first.kind is second.kind is ErrorClass.INTERRUPTED
    [exchange] = Recordings(tmp_path).all()
    assert b"".join(read for _, read in exchange.reads) == b"data: 1\n\ndata: 2"


@pytest.mark.parametrize("begins", [True, False])
async def test_a_timeout_is_a_timeout_and_comes_at_once(raw: StartRaw, tmp_path: Path, begins: bool) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(*([EVENT_STREAM, chunk(b"data: 1\n\n")] if begins else []))
        await exchange.gone()

    server = await raw(answer)
    short = {"between_bytes": 0.1} if begins else {"first_byte": 0.1}
    first, second = await both(tmp_path, lambda http: fault(http, server.url), server, **short)
    assert isinstance(first, AdapterError)
    assert isinstance(second, AdapterError)
    assert first.kind is second.kind is ErrorClass.TIMED_OUT


async def test_a_server_that_is_not_there_is_not_there(tmp_path: Path) -> None:
    first, second = await both(tmp_path, lambda http: fault(http, f"http://127.0.0.1:{refusing_port()}"))
    assert isinstance(first, AdapterError)
    assert isinstance(second, AdapterError)
    assert first.kind is second.kind is ErrorClass.UNREACHABLE


async def test_a_document_an_error_and_nothing_are_the_same(raw: StartRaw, tmp_path: Path) -> None:
    kinds = iter(
        [("200 OK", b'{"a": [1]}'), ("404 Not Found", b"{}"), ("429 Too Many Requests", b'{"error": {"message": "m"}}')]
    )

    async def answer(exchange: Exchange) -> None:
        status, body = next(kinds)
        await exchange.send(plain(status, body, Content_Type="application/json", Retry_After="7"))

    async def use(http: HttpClient) -> object:
        found = [await http.request_json("GET", f"{server.url}/{n}") for n in range(2)]
        with pytest.raises(AdapterError) as caught:
            await http.request_json("POST", server.url, {"x": 1})
        return found, caught.value.kind, caught.value.retry_after, caught.value.detail

    server = await raw(answer)
    first, second = await both(tmp_path, use, server)
    assert first == second


async def test_who_left_early_leaves_again_or_waits(raw: StartRaw, tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(EVENT_STREAM, chunk(b"data: 1\n\n"))
        await exchange.gone()

    async def use(http: HttpClient) -> object:
        async with http.stream(server.url, b"{}") as stream:
            async for events in stream:
                return events
        return None

    server = await raw(answer)
    first, second = await both(tmp_path, use, server)
    assert first == second == [b"1"]
    [exchange] = Recordings(tmp_path).all()
    assert exchange.end.how is End.CANCELLED
    http = client(Replay(tmp_path, 0).tap("a"), between_bytes=0.1)
    assert (await fault(http, server.url)).kind is ErrorClass.TIMED_OUT


async def test_what_was_never_recorded_is_told_and_nothing_is_asked(raw: StartRaw, tmp_path: Path) -> None:
    server = await raw(lambda exchange: exchange.stream(b"data: 1\n\n"))
    await both(tmp_path, lambda http: batches(http, server.url, b'{"a": 1}'), server)
    asked = len(server.requests)
    error = await fault(client(Replay(tmp_path, 0).tap("a")), f"{server.url}", headers={"X": "y"})
    assert (error.kind, len(server.requests)) == (ErrorClass.REPLAY_MISSING, asked)
    assert "differs at $.a" in error.detail


async def test_a_websocket_is_refused(tmp_path: Path) -> None:
    with Recording(tmp_path, Clock()) as recording, pytest.raises(AdapterError, match="neither recorded nor replayed"):
        async with client(recording.tap("a")).websocket("ws://127.0.0.1:1"):
            pass


def test_a_client_without_an_offer_has_no_tap() -> None:
    assert not client(None).tapped
