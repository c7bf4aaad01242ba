"""One HTTP connection: uvicorn's, with time and size limits. Law: the time for a request to arrive and the size of its head
are limited, whatever the application does; a request that is refused here never reaches the application; no byte of a body is
read as a request; a peer that reads nothing of a response loses it.

Source: docs/adr/0015. uvicorn has no time-outs for reading, and its parser keeps a head of any size, and reads no body behind
a head with `Upgrade`; a closed transport waits without a limit until its peer has read what was written.
"""

import asyncio
import socket
import struct
from asyncio import TimerHandle
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway.foundation.keep_alive import SERVER_KEEP_ALIVE
from gateway.http.batching_transport import BatchingTransport
from gateway.http.close_delimited import close_delimited
from gateway.http.reply import status_body
from gateway.http.request_head import HeadRefused, check_framing, read_target

HEAD_SECONDS = 10.0
BODY_SECONDS = 35.0
"""A little more than the application's own limit for a body, because its answer is more informative."""
BLOCKED_SECONDS = 30.0
HALF_CLOSED_SECONDS = 30.0

_CLOSE = (b"connection", b"close")
_LINGER_SECONDS = 1.0
_NO_LINGER = struct.pack("ii", 1, 0)

ARRIVED: dict[str, dict[object, object]] = {"gateway.arrived": {}}
"""The ASGI extensions of a request that has arrived completely."""

_LENIENT = {"lenient_data_after_close": True, "lenient_version": True}
"""uvicorn's own setting, and the versions that `check_framing` refuses."""

_NO_REQUEST = "this is no request of HTTP, or not one that can be read safely"

_HEAD_BYTES = 64 * 1024
"""Limit for an incomplete head, without the piece of data in which it begins, and for what comes in a body without a byte of
it: fields behind it, extensions of its chunks. The application checks the size of a complete head."""

_PIPELINED = 100
"""Requests that may wait for the answer to an earlier one. uvicorn reads on after each answer, and keeps any number."""


class _Part(Enum):
    """The part of a request that is being read."""

    NOTHING = auto()  # the connection is idle, or a request is being answered
    HEAD = auto()
    BODY = auto()


class Connection(HttpToolsProtocol):
    """`head_seconds` limits the head of a request, from its first byte, and the wait for a first byte; `blocked_seconds` the
    time in which a peer reads nothing of its response; `half_closed_seconds` the time for a response to begin whose peer sends
    nothing more; `idle_seconds` the time between a response and the next request.

    A request that arrives in one piece, as nearly all do, sets no timer.
    """

    head_seconds = HEAD_SECONDS
    body_seconds = BODY_SECONDS
    blocked_seconds = BLOCKED_SECONDS
    half_closed_seconds = HALF_CLOSED_SECONDS
    idle_seconds = SERVER_KEEP_ALIVE
    retiring = False
    """The process is about to end."""
    told: Callable[[int, str | None], None] = staticmethod(lambda _status, _peer: None)
    """Gets the status and the peer of each request that is refused here."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.parser.set_dangerous_leniencies(**_LENIENT)
        self.timeout_keep_alive = self.idle_seconds
        self._part = _Part.NOTHING
        self._timed: _Part | None = _Part.NOTHING
        self._timer: TimerHandle | None = None
        self._head_bytes = 0
        self._body_grows = False
        self._refused = False
        self._refusal: tuple[int, str, str] | None = None
        """What is answered behind the answers to earlier requests: status, name and message. Nothing more is read then."""
        self._served: RequestResponseCycle | None = None
        self._unread = 0
        self._blocked: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._outgoing = BatchingTransport(transport, self.loop, self._linger_unread)
        super().connection_made(self._outgoing)  # type: ignore[arg-type]
        self._wait(self.head_seconds, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._stop_watching()
        self._refused = True
        super().connection_lost(exc)
        # uvicorn tells only the last request of the connection, which may be waiting behind the one that is being served.
        self._abandon()
        # uvicorn does not cancel its timer where a peer resets the connection.
        self._unset_keepalive_if_required()
        self._outgoing.release()

    def _abandon(self) -> None:
        """Tells the application that the request which it serves is lost."""
        if self._served is not None:
            self._served.disconnected = True
            self._served.message_event.set()
            self._served = None

    def data_received(self, data: bytes) -> None:
        if self._reads_no_more:
            return
        self._unset_keepalive_if_required()
        self._body_grows = False
        try:
            self._parse(data)
        except HttpParserError as error:
            match error.__context__:
                case HeadRefused() as refused:
                    self._refuse(refused.status, refused.name, refused.message)
                case _:
                    self._end_unreadable()
        if self._reads_no_more:
            return
        if self._part is not self._timed:
            self._timed = self._part
            self._set_timer()
        elif self._part is _Part.NOTHING and self._timer is None and not self._answering:
            # Empty lines between two requests have ended the wait for the next request.
            self._wait(self.head_seconds, self._close)
        elif self._part is not _Part.NOTHING:
            self._head_bytes = 0 if self._body_grows else self._head_bytes + len(data)
            if self._head_bytes > _HEAD_BYTES:
                where = "in the head" if self._part is _Part.HEAD else "behind the body"
                self._drop_unfinished()
                self._refuse(431, "INVALID_ARGUMENT", f"the fields {where} of the request are too large")

    @property
    def _reads_no_more(self) -> bool:
        return self._refused or self._refusal is not None

    def _parse(self, data: bytes) -> None:
        """Reads a request with `Upgrade` as if it had none (RFC 9110, section 7.8). Raises: HttpParserError.

        httptools ends such a request behind its head and takes the body for the next one. The request is therefore begun
        again, with the same head but for that header, in front of the data that follows.
        """
        unread: bytes | memoryview = data
        while True:
            try:
                self.parser.feed_data(unread)
            except HttpParserUpgrade as upgrade:
                unread = memoryview(unread)[upgrade.args[0] :]
            else:
                return
            head = self._head_without_upgrade()
            self.parser = HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(**_LENIENT)
            try:
                self.parser.feed_data(head)
            except HttpParserUpgrade:
                # A client of a tunnel may send data of any protocol before the answer: none of it is read.
                self._refuse(501, "UNIMPLEMENTED", "this server opens no tunnel: CONNECT is not served")
                return

    def _end_unreadable(self) -> None:
        """Answers with 400, but not in the middle of a response or in the place of an earlier one."""
        self.logger.warning(_NO_REQUEST)
        self._drop_unfinished()
        self._refuse(400, "INVALID_ARGUMENT", _NO_REQUEST)

    def _drop_unfinished(self) -> None:
        """The request whose body is being read never arrives, and is not answered."""
        if self._part is not _Part.BODY:
            return
        if self._served is not self.cycle:
            self.pipeline.popleft()
        elif not self.cycle.response_started:
            self._abandon()

    def _head_without_upgrade(self) -> bytes:
        """The head that was read last."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"\r\n"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._timed, self._head_bytes = _Part.HEAD, None, 0

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # `_parse` begins it again
        self._read_head()
        if len(self.pipeline) >= _PIPELINED:
            raise HeadRefused(
                429, "RESOURCE_EXHAUSTED", f"more than {_PIPELINED} requests wait on this connection for their answers"
            )
        super().on_headers_complete()
        self._part, self._head_bytes = _Part.BODY, 0
        # Fields behind a body are no headers (RFC 9110, section 6.5.1); uvicorn would append them to those of the request.
        self.headers = []

    def _read_head(self) -> None:
        """Makes of the head what uvicorn expects of every head. Raises: HeadRefused."""
        version = self.parser.get_http_version()
        check_framing(version, self.headers)
        self.url, authority = read_target(self.url)
        if authority is not None:
            # The list is that of the scope.
            self.headers[:] = [(name, authority if name == b"host" else value) for name, value in self.headers]
        if version == "1.0":
            # HTTP/1.0 has no response before the response (RFC 9110, section 10.1.1).
            self.expect_100_continue = False

    def on_body(self, body: bytes) -> None:
        self._body_grows = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._part is _Part.HEAD:
            return  # as in `on_headers_complete`
        self._part = _Part.NOTHING
        # The application reads such a body without a time-out.
        self.scope["extensions"] = ARRIVED
        super().on_message_complete()
        if self.retiring:
            self.close_after_response()

    def close_after_response(self) -> None:
        """Makes the next response the last; not while its request still arrives, because closing would lose the response."""
        cycle = self.cycle
        # There is no cycle before the first request, despite its declared type.
        if cycle is not None and not (cycle.response_started or cycle.more_body):  # type: ignore[redundant-expr]
            cycle.default_headers = [*cycle.default_headers, _CLOSE]

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:  # type: ignore[override]
        self._served = cycle
        if cycle.scope["http_version"] == "1.0":
            app = close_delimited(app, cycle)
        super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]

    # --- a peer that sends nothing more

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether the connection stays open for a response. A peer may end its own side behind its request, and still read
        (RFC 9112, section 9.6). A peer that is gone looks the same until something is written to it, so a response that
        has begun ends at once, and one that has not begun has a time limit.
        """
        self._outgoing.flush()  # what is written goes out, also where the loop closes the transport now
        serving = self._serving
        if self._refused or serving is None or serving.response_started:
            return False
        if self._refusal is None:
            if self._part is not _Part.NOTHING:
                return False
            self.cycle.keep_alive = False
        if self._timer is None:
            self._wait(self.half_closed_seconds, self._response_is_late)
        return True

    def _response_is_late(self) -> None:
        if self._served is None or not self._served.response_started:
            self._close()

    # --- a peer that reads nothing

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_watching()

    def on_response_complete(self) -> None:
        last = not self.pipeline
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch()
        elif last and self._refusal is not None:
            self._unset_keepalive_if_required()
            self._send_refusal(*self._refusal)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch()

    def _watch(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        if self._unread and self._blocked is None:
            self._blocked = self.loop.call_later(self.blocked_seconds, self._look)

    def _look(self) -> None:
        self._blocked, before = None, self._unread
        if 0 < before <= self.transport.get_write_buffer_size():
            self.drop()
        else:
            self._watch()

    def drop(self) -> None:
        """Drops the unsent data too, which the system would keep for the peer otherwise."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    def _stop_watching(self) -> None:
        if self._blocked is not None:
            self._blocked.cancel()
            self._blocked = None

    # --- time limits of a request

    @property
    def _serving(self) -> RequestResponseCycle | None:
        """The request that is being answered; others may wait for their turn."""
        served = self._served
        return None if served is None or served.response_complete or served.disconnected else served

    @property
    def _answering(self) -> bool:
        # There is no cycle before the first request, despite its declared type.
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.disconnected)  # type: ignore[redundant-expr]

    def _set_timer(self) -> None:
        match self._part:
            case _Part.HEAD:
                self._wait(self.head_seconds, self._head_is_late)
            case _Part.BODY:
                self._wait(self.body_seconds, self._body_is_late)
            case _Part.NOTHING if self._answering:
                self._stop()
            case _Part.NOTHING:
                # A body that arrived after its response has ended the wait for the next request, which begins again.
                self._wait(self.idle_seconds, self._close)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, then)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """Closes once the peer has read what was written, whatever it still sends."""
        self._refused = True
        self.transport.close()
        self._watch()

    def _head_is_late(self) -> None:
        self._refuse(408, "DEADLINE_EXCEEDED", f"the head of the request did not arrive within {self.head_seconds:g} s")

    def _body_is_late(self) -> None:
        if self.pipeline:
            # Its data is not read before the earlier request of the connection is answered.
            self._wait(self.body_seconds, self._body_is_late)
        else:
            self._close()

    def _refuse(self, status: int, name: str, message: str) -> None:
        """Answers behind the answers to earlier requests. Where one of these has begun, which may be a stream without an end,
        the connection just ends."""
        self._stop()
        if self.transport.is_closing():
            self._close()
        elif not self._serving:
            self._send_refusal(status, name, message)
        elif self._serving.response_started:
            self._close()
        else:
            self._refusal = status, name, message

    def _send_refusal(self, status: int, name: str, message: str) -> None:
        body = status_body(status, name, message)
        self.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (STATUS_LINE[status], len(body), body)
        )
        self._linger(_LINGER_SECONDS)
        self.told(status, self.client[0] if self.client else None)

    def _linger_unread(self) -> bool:
        """Whether a complete response ends its connection before the request has arrived: the peer may still send the rest."""
        if self._part is not _Part.BODY or self._refused or self._answering:
            return False
        self._linger(_LINGER_SECONDS if self.retiring else self.body_seconds)
        return True

    def _linger(self, seconds: float) -> None:
        """Reads and drops further data: closing a connection with unread data would lose the response."""
        self._refused = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._wait(seconds, self._close)
