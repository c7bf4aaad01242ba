"""The headers of a call: what is wrong with them ends that call alone."""

import asyncio
import struct

import pytest

from tests.gateway.grpc.calling import connection_of, path, serving
from tests.gateway.grpc.raw import (
    ACK,
    DATA,
    END_STREAM,
    GOAWAY,
    HELLO,
    NO_ERROR,
    PING,
    RST_STREAM,
    SETTINGS,
    Frame,
    block,
    frame,
    headers,
    message,
    raw_peer,
    request,
    status,
)
from tests.gateway.grpc.test_connection import ends
from tests.gateway.grpc.test_service import FIRST, streaming
from tests.support.core import until

SEND_MESSAGE, STREAM = path("SendMessage"), path("SendStreamingMessage")
PSEUDO = [(":method", "POST"), (":scheme", "http"), (":path", SEND_MESSAGE)]
PLAIN = [("te", "trailers"), ("content-type", "application/grpc"), ("a2a-version", "1.0")]


def fields(*further: tuple[str, str]) -> bytes:
    return block(3, [*PSEUDO, *PLAIN, *further])


@pytest.mark.parametrize(
    "sent",
    [
        fields(("x-a", "v ")),
        fields(("x-a", " v")),
        fields(("x-a", "")),
        fields(("host", "elsewhere.example")),
        fields(("x-a", "x" * 60_000)),
        fields(("content-length", str(len(HELLO) + 5))),
        fields(("te", "Trailers")),
        fields(("cookie", "a=b"), ("cookie", "c=d")),
        fields(("x-\N{GREEK SMALL LETTER ALPHA}"[:2] + "a", "\N{GREEK SMALL LETTER ALPHA}")),
    ],
    ids=["trailing", "leading", "empty", "host", "long", "length", "te", "cookies", "unicode"],
)
async def test_odd_metadata_are_those_of_a_call(sent: bytes) -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(sent + message(3))
        assert (await status(peer, 3))[0] == "0"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (fields(("connection", "close")), ("3", "the header 'connection' is not one of HTTP/2")),
        (fields(("transfer-encoding", "chunked")), ("3", "the header 'transfer-encoding' is not one of HTTP/2")),
        (fields(("te", "gzip")), ("3", "the header 'te' is not one of HTTP/2")),
        (fields(("X-A", "v")), ("3", "the header 'X-A' is not the name of a header")),
        (fields(("x a", "v")), ("3", "the header 'x a' is not the name of a header")),
        (fields(("", "v")), ("3", "the header '' is not the name of a header")),
        (fields(("x-a", "v\r\nx-b: w")), ("3", "the header 'x-a' has a value of more than one line")),
        (fields(("x-a", "v\0")), ("3", "the header 'x-a' has a value of more than one line")),
        (fields(("content-length", "-3")), ("3", "the header 'content-length' is not a number of bytes")),
        (fields(("content-length", "3"), ("content-length", "3")), ("3", "the header 'content-length' is given twice")),
        (fields(("grpc-timeout", "1S"), ("grpc-timeout", "2S")), ("3", "the header 'grpc-timeout' is given twice")),
        (fields(("content-type", "application/grpc")), ("3", "the header 'content-type' is given twice")),
        (fields((":path", "/")), ("3", "the header ':path' stands where it must not")),
        (block(3, [*PSEUDO, PSEUDO[0], *PLAIN]), ("3", "the header ':method' stands where it must not")),
        (block(3, [(":status", "100"), *PSEUDO, *PLAIN]), ("3", "the header ':response-status' stands where it must not")),
        (block(3, [*PSEUDO[:2], *PLAIN]), ("3", "the header ':path' is missing")),
        (block(3, [PSEUDO[0], PSEUDO[2], *PLAIN]), ("3", "the header ':scheme' is missing")),
        (block(3, [*PSEUDO[1:], *PLAIN]), ("405", "")),
        (fields(("x-a", "x" * 70_000)), ("8", "the metadata have more than 65536 bytes")),
        (fields(*[(f"x-{number}", "y" * 100) for number in range(500)]), ("8", "the metadata have more than 65536 bytes")),
    ],
    ids=[
        *("connection", "encoding", "te", "capitals", "blank", "nameless", "lines", "zero"),
        *("length", "lengths", "deadlines", "types", "late", "twice", "response"),
        *("path", "scheme", "method", "size", "number"),
    ],
)  # fmt: skip
async def test_headers_that_are_no_calls_are_refused_and_the_other_calls_go_on(
    sent: bytes, said: tuple[str, str]
) -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(DATA)
        peer.send(sent)
        assert await status(peer, 3) == said
        assert await peer.next(RST_STREAM) == Frame(RST_STREAM, 0, 3, NO_ERROR)
        peer.send(message(3) + request(5, SEND_MESSAGE))
        assert await ends(peer, 5)
        assert not stream.closed.is_set()
        assert connection_of(served)._http.open_inbound_streams == 1


@pytest.mark.parametrize("length", [len(HELLO) + 4, len(HELLO) + 6])
@pytest.mark.parametrize("apart", [False, True])
async def test_a_body_of_another_size_than_was_said_is_refused_and_the_other_calls_go_on(
    length: int, apart: bool
) -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        body = message(3, flags=0) + frame(DATA, END_STREAM, 3) if apart else message(3)
        peer.send(fields(("content-length", str(length))) + body + request(5, SEND_MESSAGE))
        assert await status(peer, 3) == ("3", "the header 'content-length' is not the size of the body")
        assert (await status(peer, 5))[0] == "0"
    assert len(served.operations.calls) == 1


async def test_the_size_of_headers_is_announced() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        found = await peer.next(SETTINGS)
    assert found is not None
    said = dict(struct.iter_unpack(">HI", found.payload))
    assert (said[3], said[6]) == (1000, 65536)


async def test_headers_of_more_than_can_be_read_end_the_connection() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(fields(("x-a", "x" * 140_000)))
        assert await peer.next(GOAWAY)
        assert await peer.ended()


async def test_trailers_of_a_caller_end_its_side() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        trailers = block(3, [("x-a", "v")])
        peer.send(headers(3, SEND_MESSAGE) + message(3, flags=0) + trailers[:4] + bytes((5,)) + trailers[5:])
        assert (await status(peer, 3))[0] == "0"


# --- settings of the peer


async def test_a_peer_may_allow_a_large_table_of_headers_of_which_little_is_used() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 1, 2**31)) + frame(PING, 0, 0, bytes(8)))
        assert await peer.next(PING) == Frame(PING, ACK, 0, bytes(8))
        peers = [each for each in served.server._connections if each._http.encoder.header_table_size == 4096]
        assert peers == [connection_of(served)]


async def test_a_peer_that_takes_large_frames_gets_its_answer() -> None:
    async with serving() as served, raw_peer(served.port, window=2**24) as peer, asyncio.timeout(20):
        peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 5, 2**24 - 1)) + request(1, SEND_MESSAGE))
        assert (await status(peer, 1))[0] == "0"


async def test_windows_that_are_taken_back_and_granted_anew_bring_the_answer() -> None:
    async with serving() as served, raw_peer(served.port, window=10) as peer, asyncio.timeout(20):
        peer.send(request(1, SEND_MESSAGE))
        assert await peer.next(DATA)
        for size in (0, 5, 0, 100_000):
            peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, size)))
        assert (await status(peer, 1))[0] == "0"


# --- what means nothing


@pytest.mark.parametrize(
    "sent",
    [
        frame(77, 0xFF, 0, bytes(100)),
        frame(77, 0, 3, bytes(100)),
        frame(2, 0, 3, (3).to_bytes(4) + b"\x10"),
        frame(2, 0, 3, bytes(3)),
        frame(DATA, 8, 1, b"\x04" + bytes(4)),
    ],
    ids=["unknown", "unknown-of-call", "own-priority", "short-priority", "padding"],
)
async def test_frames_that_mean_nothing_are_passed_over(sent: bytes) -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, SEND_MESSAGE) + sent + message(1))
        assert (await status(peer, 1))[0] == "0"


async def test_data_behind_the_end_of_a_call_end_that_call_alone() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(DATA)
        peer.send(message(1))
        assert await peer.next(RST_STREAM)
        await stream.closed.wait()
        peer.send(request(3, SEND_MESSAGE))
        assert await ends(peer, 3)


@pytest.mark.parametrize("apart", [False, True], ids=["at once", "apart"])
async def test_a_call_with_a_further_message_is_refused(apart: bool) -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, SEND_MESSAGE) + message(1, flags=0))
        if apart:
            peer.send(frame(PING, 0, 0, bytes(8)))
            assert await peer.next(PING)
        peer.send(message(1))
        assert await status(peer, 1) == ("12", "the call has more than one message")
    assert served.operations.calls == []


async def test_a_call_begins_when_its_caller_has_said_all() -> None:
    async with serving() as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(headers(1, SEND_MESSAGE) + message(1, flags=0) + frame(PING, 0, 0, bytes(8)))
        assert await peer.next(PING)
        assert served.operations.calls == []
        peer.send(frame(DATA, END_STREAM, 1))
        assert (await status(peer, 1))[0] == "0"


async def test_a_peer_that_says_no_more_is_gone() -> None:
    operations, stream = streaming([(1, FIRST)], stays_open=True)
    async with serving(operations=operations) as served, raw_peer(served.port) as peer, asyncio.timeout(20):
        peer.send(request(1, STREAM))
        assert await peer.next(DATA)
        peer.end()
        await stream.closed.wait()
        await until(lambda: not served.server._connections)
