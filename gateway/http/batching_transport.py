"""A transport between uvicorn and the socket. Law: what one step of the event loop writes is sent in one piece.

Source: docs/adr/0015.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress


class BatchingTransport:
    """The part of `asyncio.Transport` that uvicorn uses; what one step of the event loop writes is sent in one piece.

    `linger` decides whether a first `close` waits for the peer. uvicorn writes the head of a response and its body apart, and
    uvloop sends at once whatever is written. Each send may wake another process, which costs more than the send itself: a
    client of several responses is woken once.
    """

    __slots__ = ("_chunks", "_closing", "_linger", "_loop", "_transport")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, linger: Callable[[], bool]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._linger: Callable[[], bool] | None = linger
        self._closing = False
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._chunks:
            self._loop.call_soon(self.flush)
        self._chunks.append(data)

    def flush(self) -> None:
        data = b"".join(self._chunks)
        self._chunks.clear()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def write_eof(self) -> None:
        self.flush()
        with suppress(OSError):
            # The peer disconnected; asyncio raises then, uvloop does not.
            self._transport.write_eof()

    def close(self) -> None:
        """Closes at once, or at the second call if the connection lingers."""
        self.flush()
        if self.is_closing() or self._linger is None or not self._linger():
            self._transport.close()
        self._closing = True

    def release(self) -> None:
        """Drops the reference to the connection, a cycle that would stay until the garbage collector runs."""
        self._linger = None

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._chunks)) + self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default)
