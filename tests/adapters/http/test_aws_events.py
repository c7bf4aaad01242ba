"""Event streams of Amazon Web Services out of any stream of bytes."""

import struct
from binascii import crc32
from itertools import pairwise

import pytest

pytest.importorskip("botocore")

from adapters.http.aws_events import AWS_EVENTS, AwsEvent, AwsEventReader
from adapters.http.sse import STREAM_LIMIT, StreamTooLarge
from adapters.http.streams import UnreadableStream
from gateway.ports.adapter import AdapterError, ErrorClass
from tests.adapters.http.conftest import Connect
from tests.adapters.raw_server import Exchange, StartRaw, plain


def wire(payload: bytes, **headers: str) -> bytes:
    """Source: Amazon Transcribe, event stream encoding; headers are strings (type 7)."""
    packed = b"".join(
        struct.pack("!B", len(name) + 1)
        + b":"
        + name.replace("_", "-").encode()
        + struct.pack("!BH", 7, len(value))
        + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack("!I", crc32(prelude)) + packed + payload
    return message + struct.pack("!I", crc32(message))


_WIRE = wire(b'{"p":"ab"}', message_type="event", event_type="chunk") + wire(
    b"", message_type="event", event_type="end"
)
_EVENTS = [
    AwsEvent({":message-type": "event", ":event-type": "chunk"}, b'{"p":"ab"}'),
    AwsEvent({":message-type": "event", ":event-type": "end"}, b""),
]


def test_it_makes_no_difference_where_the_stream_is_cut() -> None:
    def read(cuts: list[int]) -> list[AwsEvent]:
        reader = AwsEventReader()
        pieces = [_WIRE[start:end] for start, end in pairwise([0, *cuts, len(_WIRE)])]
        events = [event for piece in pieces for event in reader.feed(piece)]
        reader.finish()
        return events

    assert read([]) == _EVENTS
    assert read(list(range(1, len(_WIRE)))) == _EVENTS
    for cut in range(1, len(_WIRE)):
        assert read([cut]) == _EVENTS


@pytest.mark.parametrize("at", [3, 9, 20, len(_WIRE) - 1], ids=["length", "its checksum", "header", "checksum"])
def test_a_damaged_event_is_refused(at: int) -> None:
    damaged = bytearray(_WIRE)
    damaged[at] ^= 1
    with pytest.raises(UnreadableStream, match="an event that cannot be read: Checksum mismatch"):
        AwsEventReader().feed(bytes(damaged))


def test_an_event_whose_headers_make_no_sense_is_refused() -> None:
    prelude = struct.pack("!II", 20, 4)
    message = prelude + struct.pack("!I", crc32(prelude)) + b"\x01a\x63\x00"
    with pytest.raises(UnreadableStream, match="an event that cannot be read"):
        AwsEventReader().feed(message + struct.pack("!I", crc32(message)))


def test_a_stream_of_events_is_not_endless() -> None:
    event = wire(b"x" * 1024 * 1024)
    reader = AwsEventReader()
    with pytest.raises(StreamTooLarge):  # noqa: PT012
        for _ in range(STREAM_LIMIT // len(event) + 1):
            reader.feed(event)


async def test_events_come_over_a_connection(raw: StartRaw, connect: Connect) -> None:
    server = await raw(lambda exchange: exchange.send(plain("200 OK", _WIRE, Content_Type=AWS_EVENTS)))
    async with connect().read(server.url, b"{}", AwsEventReader(), content_type=AWS_EVENTS) as stream:
        assert [event async for batch in stream for event in batch] == _EVENTS
    assert server.requests[0].header("Accept") == AWS_EVENTS


@pytest.mark.parametrize(
    ("body", "kind", "detail"),
    [
        (_WIRE[:-1], ErrorClass.INTERRUPTED, "the stream was cut: it ended in an event"),
        (b"x" * 50, ErrorClass.CONTRACT_BROKEN, "an event that cannot be read: Checksum mismatch"),
    ],
    ids=["cut", "garbage"],
)
async def test_a_stream_that_is_cut_or_broken(
    raw: StartRaw, connect: Connect, body: bytes, kind: ErrorClass, detail: str
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain("200 OK", body, Content_Type=AWS_EVENTS))

    server = await raw(answer)
    with pytest.raises(AdapterError) as caught:  # noqa: PT012
        async with connect().read(server.url, b"{}", AwsEventReader(), content_type=AWS_EVENTS) as stream:
            async for _ in stream:
                pass
    assert (caught.value.kind, caught.value.detail[: len(detail)]) == (kind, detail)
