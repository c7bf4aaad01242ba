"""A peer that speaks HTTP/2 by hand, so that it can say what no library would."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from hpack import Decoder
from hpack.hpack import encode_integer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *range(5),
    *range(6, 10),
)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CANCEL, REFUSED_STREAM, NO_ERROR, PROTOCOL_ERROR = (code.to_bytes(4) for code in (8, 7, 0, 1))
ENHANCE_YOUR_CALM = 11
LARGEST = 2**14
"""Bytes of a frame."""

HELLO = b"\x12\x0f\x0a\x01m\x20\x01\x2a\x08\x0a\x06Hello!"
"""A SendMessageRequest."""


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def headers(
    stream: int, where: str, *further: tuple[str, str], method: str = "POST", kind: str = "application/grpc"
) -> bytes:
    """The headers of a call as literals of HPACK."""
    fields = [
        (":method", method),
        (":scheme", "http"),
        (":path", where),
        (":authority", "127.0.0.1"),
        ("te", "trailers"),
        ("content-type", kind),
        ("a2a-version", "1.0"),
        *further,
    ]
    return block(stream, fields)


def block(stream: int, fields: Sequence[tuple[str, str]]) -> bytes:
    """Any headers, in as many frames as they need."""
    whole = b"".join(b"\x00" + _literal(name) + _literal(value) for name, value in fields)
    pieces = [whole[at : at + LARGEST] for at in range(0, len(whole), LARGEST)]
    kinds = [HEADERS, *[CONTINUATION] * (len(pieces) - 1)]
    ends = [*[0] * (len(pieces) - 1), END_HEADERS]
    return b"".join(frame(kind, end, stream, piece) for kind, end, piece in zip(kinds, ends, pieces, strict=True))


def _literal(text: str) -> bytes:
    data = text.encode()
    return bytes(encode_integer(len(data), 7)) + data


def message(stream: int, payload: bytes = HELLO, flags: int = END_STREAM, compressed: int = 0) -> bytes:
    return frame(DATA, flags, stream, struct.pack(">BI", compressed, len(payload)) + payload)


def request(stream: int, where: str, *further: tuple[str, str]) -> bytes:
    return headers(stream, where, *further) + message(stream)


class Peer:
    """`headers` are those that came last."""

    def __init__(self, reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        self._reading = reading
        self._writing = writing
        self._decoder = Decoder()
        self.headers: dict[str, str] = {}

    @property
    def name(self) -> tuple[str, int]:
        """The address of its socket."""
        found: tuple[str, int] = self._writing.get_extra_info("sockname")
        return found

    def send(self, data: bytes) -> None:
        self._writing.write(data)

    def end(self) -> None:
        """Says no more, and goes on reading."""
        self._writing.write_eof()

    def window(self, stream: int, size: int) -> None:
        self.send(frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4)))

    async def next(self, *kinds: int) -> Frame | None:
        """The next frame of one of these kinds, None when the connection ends before."""
        try:
            while True:
                head = await self._reading.readexactly(9)
                payload = await self._reading.readexactly(int.from_bytes(head[:3]))
                found = Frame(head[3], head[4], int.from_bytes(head[5:]), payload)
                if found.kind == HEADERS:
                    self.headers = {str(name): str(value) for name, value in self._decoder.decode(payload)}
                if found.kind in kinds:
                    return found
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ended(self) -> bool:
        """Waits for the end of the connection."""
        return await self.next() is None


async def status(peer: Peer, stream: int) -> tuple[str, str]:
    """The code and the text that a call ends with."""
    while found := await peer.next(HEADERS, RST_STREAM):
        if found.kind == HEADERS:
            if found.stream == stream and found.flags & END_STREAM:
                said = peer.headers
                return said.get("grpc-status", said.get(":status", "")), said.get("grpc-message", "")
        elif found.stream == stream:
            break
    raise AssertionError("the call has no status")


@asynccontextmanager
async def raw_peer(port: int, window: int = 65535) -> AsyncIterator[Peer]:
    """A peer that grants each call a window of so many bytes."""
    reading, writing = await asyncio.open_connection("127.0.0.1", port)
    writing.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))
    try:
        yield Peer(reading, writing)
    finally:
        writing.close()
