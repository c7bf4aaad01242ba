"""A peer that speaks HTTP/2 by hand, so that it can say what no library would."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 2, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CANCEL, REFUSED_STREAM, NO_ERROR = (code.to_bytes(4) for code in (8, 7, 0))
ENHANCE_YOUR_CALM = 11

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
    block = b"".join(b"\x00" + _literal(name) + _literal(value) for name, value in fields)
    return frame(HEADERS, END_HEADERS, stream, block)


def _literal(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def message(stream: int, payload: bytes = HELLO, flags: int = END_STREAM, compressed: int = 0) -> bytes:
    return frame(DATA, flags, stream, struct.pack(">BI", compressed, len(payload)) + payload)


def request(stream: int, where: str, *further: tuple[str, str]) -> bytes:
    return headers(stream, where, *further) + message(stream)


class Peer:
    def __init__(self, reading: asyncio.StreamReader, writing: asyncio.StreamWriter) -> None:
        self._reading = reading
        self._writing = writing

    def send(self, data: bytes) -> None:
        self._writing.write(data)

    def window(self, stream: int, size: int) -> None:
        self.send(frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4)))

    async def next(self, *kinds: int) -> Frame | None:
        """The next frame of one of these kinds, None when the connection ends before."""
        try:
            while True:
                head = await self._reading.readexactly(9)
                payload = await self._reading.readexactly(int.from_bytes(head[:3]))
                found = Frame(head[3], head[4], int.from_bytes(head[5:]), payload)
                if found.kind in kinds:
                    return found
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ended(self) -> bool:
        """Waits for the end of the connection."""
        return await self.next() is None


@asynccontextmanager
async def raw_peer(port: int, window: int = 65535) -> AsyncIterator[Peer]:
    """A peer that grants each call a window of so many bytes."""
    reading, writing = await asyncio.open_connection("127.0.0.1", port)
    writing.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))
    try:
        yield Peer(reading, writing)
    finally:
        writing.close()
