"""One HTTP connection: uvicorn's, with an end to its patience. Law: a request has so long to arrive and its head may be so
large, whatever the application does; what is refused here never reaches it; who takes nothing of an answer loses it.

Source: uvicorn has no time-outs for what it reads, and its parser keeps a head of any size; a transport that is closed waits
for its peer to take what was written, for ever. It writes the head of an answer and its body apart, and uvloop sends at once
whatever is written.
"""

import asyncio
import socket
import struct
from asyncio import TimerHandle
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.foundation.keep_alive import SERVER_KEEP_ALIVE

HEAD_SECONDS = 10.0
BODY_SECONDS = 35.0
"""A little more than what the application gives a body, whose answer says more."""
BLOCKED_SECONDS = 30.0

_CLOSE = (b"connection", b"close")
_LINGER_SECONDS = 1.0
_AT_ONCE = struct.pack("ii", 1, 0)

ARRIVED: dict[str, dict[object, object]] = {"gateway.arrived": {}}
"""The extensions of a request that is here, whole."""

_HEAD_BYTES = 64 * 1024
"""Of a head that is not complete, behind the piece in which it begins, which may hold much else. Whether a complete one is too
large is the application's to say."""


class _Part(Enum):
    """What is read of a connection."""

    NOTHING = auto()  # it is idle, or an answer is on its way
    HEAD = auto()
    BODY = auto()


class _Outgoing:
    """The transport of a connection: what one step of the event loop writes is sent together, behind that of all others.

    Each sending may wake somebody, which costs more than what is sent: who gets several answers is woken once.
    """

    __slots__ = ("_chunks", "_closing", "_lingers", "_loop", "_transport")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, lingers: Callable[[], bool]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._lingers: Callable[[], bool] | None = lingers
        self._closing = False
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._chunks:
            self._loop.call_soon(self._send)
        self._chunks.append(data)

    def _send(self) -> None:
        data = b"".join(self._chunks)
        self._chunks.clear()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def write_eof(self) -> None:
        self._send()
        with suppress(OSError):
            # The peer has gone; asyncio says so, uvloop does not.
            self._transport.write_eof()

    def close(self) -> None:
        """At once, unless it lingers; then the second time."""
        self._send()
        if self.is_closing() or self._lingers is None or not self._lingers():
            self._transport.close()
        self._closing = True

    def let_go(self) -> None:
        """Of the connection, which would stay with it until the garbage collector looks."""
        self._lingers = None

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


class Connection(HttpToolsProtocol):
    """`head_seconds` is for the head of a request, from its first byte, and for a connection that says nothing;
    `blocked_seconds` for a peer that takes nothing of what waits for it; `idle_seconds` between an answer and the next request.

    A request that comes in one piece, as nearly all do, sets no timer.
    """

    head_seconds = HEAD_SECONDS
    body_seconds = BODY_SECONDS
    blocked_seconds = BLOCKED_SECONDS
    idle_seconds = SERVER_KEEP_ALIVE
    leaving = False
    """The process is about to go."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.timeout_keep_alive = self.idle_seconds
        self._part = _Part.NOTHING
        self._timed: _Part | None = _Part.NOTHING
        self._timer: TimerHandle | None = None
        self._head_bytes = 0
        self._refused = False
        self._untaken = 0
        self._blocked: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._outgoing = _Outgoing(transport, self.loop, self._lingers)
        super().connection_made(self._outgoing)  # type: ignore[arg-type]
        self._wait(self.head_seconds, self._is_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._is_taken()
        self._refused = True
        super().connection_lost(exc)
        # uvicorn leaves its timer to itself where a peer resets.
        self._unset_keepalive_if_required()
        self._outgoing.let_go()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._refused:
            return
        if self._part is not self._timed:
            self._timed = self._part
            self._time()
        elif self._part is _Part.NOTHING and self._timer is None and not self._answers:
            # Empty lines between two requests: they have ended the wait for the next one.
            self._wait(self.head_seconds, self._is_silent)
        elif self._part is _Part.HEAD:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self._refuse(431, "INVALID_ARGUMENT", "the head of the request is too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._timed, self._head_bytes = _Part.HEAD, None, 0

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._part = _Part.BODY

    def on_message_complete(self) -> None:
        self._part = _Part.NOTHING
        # Who reads the body need not wait for it.
        self.scope["extensions"] = ARRIVED
        super().on_message_complete()
        if self.leaving:
            self.part()

    def part(self) -> None:
        """Makes the answer that is owed the last one. Not where the request is still coming: closing would take the answer."""
        cycle = self.cycle
        # There is no cycle before the first request, whatever its type says.
        if cycle is not None and not (cycle.response_started or cycle.more_body):  # type: ignore[redundant-expr]
            cycle.default_headers = [*cycle.default_headers, _CLOSE]

    # --- what the peer takes

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._is_taken()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch()

    def _watch(self) -> None:
        self._untaken = self.transport.get_write_buffer_size()
        if self._untaken and self._blocked is None:
            self._blocked = self.loop.call_later(self.blocked_seconds, self._look)

    def _look(self) -> None:
        self._blocked, before = None, self._untaken
        if 0 < before <= self.transport.get_write_buffer_size():
            self._drop()
        else:
            self._watch()

    def _drop(self) -> None:
        """With all that waits, which the system would keep for it otherwise."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _is_taken(self) -> None:
        if self._blocked is not None:
            self._blocked.cancel()
            self._blocked = None

    # --- the time that a request has

    @property
    def _answers(self) -> bool:
        # There is no cycle before the first request, whatever its type says.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _time(self) -> None:
        match self._part:
            case _Part.HEAD:
                self._wait(self.head_seconds, self._head_is_late)
            case _Part.BODY:
                self._wait(self.body_seconds, self._body_is_late)
            case _Part.NOTHING if self._answers:
                self._stop()
            case _Part.NOTHING:
                # A body that came behind its answer: it has ended the wait for the next request, and that begins again.
                self._wait(self.idle_seconds, self._is_silent)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, then)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_silent(self) -> None:
        """Who connects and says nothing gets no answer either."""
        self._close()

    def _close(self) -> None:
        """When what was written is taken, whatever is still being sent."""
        self._refused = True
        self.transport.close()
        self._watch()

    def _head_is_late(self) -> None:
        self._refuse(408, "DEADLINE_EXCEEDED", f"the head of the request did not arrive within {self.head_seconds:g} s")

    def _body_is_late(self) -> None:
        if self.pipeline:
            # Nothing of it is read before the request in front of it is answered.
            self._wait(self.body_seconds, self._body_is_late)
        else:
            self._close()

    def _refuse(self, status: int, name: str, message: str) -> None:
        """Where an earlier request of the connection is still being answered, the connection just ends."""
        self._stop()
        if self._answers or self.transport.is_closing():
            self._close()
        else:
            body = msgspec.json.encode({"error": {"code": status, "status": name, "message": message}})
            self.transport.write(
                b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (STATUS_LINE[status], len(body), body)
            )
            self._linger(_LINGER_SECONDS)

    def _lingers(self) -> bool:
        """A whole answer that ends its connection before the request has come. Who is told of it sends the rest and closes."""
        if self._part is not _Part.BODY or self._refused or self._answers:
            return False
        self._linger(_LINGER_SECONDS if self.leaving else self.body_seconds)
        return True

    def _linger(self, seconds: float) -> None:
        """What still comes is read and dropped: a connection that ends with something unread takes the answer with it."""
        self._refused = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._wait(seconds, self._close)
