"""A connection of HTTP/2 with its calls, over h2. Law: what is there at once is one write, and h2 gets no more than the socket
takes; a peer that has more to take is read no further; no peer has the event loop for more than a bounded part of what it
sends; every end that the gateway decides on is one line in the log.

Source: RFC 9113.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, cast

import structlog
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from gateway.a2a.errors import A2AError
from gateway.grpc import headers as requests
from gateway.grpc.arrivals import Arrivals, Arriving
from gateway.grpc.blocked import Blocked
from gateway.grpc.context import CallerGone, Context, refusal
from gateway.grpc.frames import Frames, Violation
from gateway.grpc.stream import Stream
from gateway.grpc.turns import Held, Turns
from gateway.http.reply import Headers

_CALLS = 1000
"""Open calls of one connection. More wait in the client."""

_STREAM_WINDOW, _WINDOW = 2**18, 2**20
"""Bytes that a caller may send before they are asked for, on one call and on all of a connection."""

_AT_ONCE = 2**18
"""Bytes that are given to the socket at once."""

_HEADER_TABLE = 2**12
"""Bytes that are remembered of what a peer has been told, however many it allows: they are searched for each header."""

_ANSWER_SECONDS = 20.0
"""Within which a peer answers a ping."""

BEGIN_SECONDS = 10.0
"""Within which a peer says that it speaks HTTP/2."""

_IDLE_SECONDS = 300.0
"""After which a connection without a call is closed."""

_LINGER_SECONDS = 1.0
"""For a peer to close a connection that the gateway has ended: closing first would take back what it has not read yet."""

_CONFIGURATION = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)
"""What comes in is looked at by `requests`, what goes out is the gateway's own."""

log = structlog.get_logger("gateway.grpc.connection")


class Bounds(NamedTuple):
    """`largest` is the number of bytes of the largest message of a caller. `keepalive` is the silence in seconds after which a
    connection is tried, `blocked` the number of seconds after which a peer is given up that does not read its socket."""

    largest: int
    keepalive: float
    blocked: float


Serve = Callable[[Context], Coroutine[Any, Any, None]]
"""Runs a call until it has ended; raises nothing."""


class _Http(H2Connection):
    """Remembers no more than the latest streams that have ended."""

    MAX_CLOSED_STREAMS = 2**12


class Connection(asyncio.Protocol):
    def __init__(
        self,
        serve: Serve,
        calls: asyncio.TaskGroup,
        bounds: Bounds,
        held: Held,
        arriving: Arriving,
        opened: "Callable[[Connection], None]",
        closed: "Callable[[Connection], None]",
    ) -> None:
        """`calls` runs the calls, `held` counts what their callers have to take, `arriving` what they bring."""
        self._serve = serve
        self._calls = calls
        self._bounds = bounds
        self._opened = opened
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._streams: dict[int, Stream] = {}
        self._blocked = Blocked(self, bounds.blocked, self._loop)
        self._frames = Frames(self._loop.time)
        self._http = _Http(_CONFIGURATION)
        self._http.decoder = requests.Decoder()
        self._leaving = False
        self._ended = False
        self._writable = True
        self._planned = False
        self._reads_on = False
        self._room_granted = False
        self._latest = 0
        self._given = 0
        self._written = 0
        self._heard = False
        self._asked = False
        self.peer = ""
        self.turns = Turns(held)
        self.arrivals = Arrivals(arriving)

    # --- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = address[0].removeprefix("::ffff:") if address else ""
        self._opened(self)
        self._unused_since = self._loop.time()
        self._timer = self._loop.call_later(self._bounds.keepalive, self._listen)
        self._beginning = self._loop.call_later(BEGIN_SECONDS, self._begin)
        self._announce()
        self._flush()

    def _announce(self) -> None:
        window = {SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW}
        announced = {
            SettingCodes.MAX_CONCURRENT_STREAMS: _CALLS,
            SettingCodes.MAX_HEADER_LIST_SIZE: requests.LARGEST,
        }
        self._http.local_settings = Settings(client=False, initial_values=window | announced)
        self._http.initiate_connection()
        # A stream too many is an error of the connection to h2.
        self._http.local_settings = Settings(client=False, initial_values=window)
        self._http.increment_flow_control_window(_WINDOW - self._http.inbound_flow_control_window)

    @property
    def descriptor(self) -> int:
        descriptor: int = self._transport.get_extra_info("socket").fileno()
        return descriptor

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        self._heard = True
        if self._frames.rest:
            # It was on its way when reading stopped.
            self._frames.rest += data
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        """As much as is read at once; the rest is read when others have had their turn."""
        try:
            for event in self._http.receive_data(self._frames.passed(data)):
                self._take(event)
            if self._frames.empty_window:
                self._refuse_window()
        except Violation as violation:
            self._violated(violation)
            return
        except ProtocolError as error:
            # h2 has said so to the peer.
            self._end(f"protocol: {type(error).__name__}")
            return
        if self._room_granted:
            self._room_granted = False
            self._blocked.send_all()
        self._end_if_done()
        self.plan()
        if self._frames.rest and not self._ended:
            self._transport.pause_reading()
            self._plan_reading()

    def _plan_reading(self) -> None:
        """Of the rest."""
        if not self._reads_on:
            self._reads_on = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._reads_on = False
        if self._ended or not self._writable:
            return
        self._heard = True
        self._read(b"")
        if not self._frames.rest:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if self._writable and not self._transport.is_closing():
            self._transport.resume_reading()

    def _refuse_window(self) -> None:
        """Raises: Violation."""
        number, self._frames.empty_window = self._frames.empty_window, 0
        self.reset(number, ErrorCodes.PROTOCOL_ERROR)
        if stream := self._streams.get(number):
            stream.lose()
        self._frames.made_reset()

    def unheard(self) -> None:
        try:
            self._frames.made_reset()
        except Violation as violation:
            # The call that has ended is one of many that may be ending.
            self._loop.call_soon(self._violated, violation)

    def _violated(self, violation: Violation) -> None:
        self._say_farewell(violation.code)
        self._end(str(violation))

    def pause_writing(self) -> None:
        self._writable = False
        if not self._ended:
            self._transport.pause_reading()
        self._blocked.watch()

    def resume_writing(self) -> None:
        self._writable = True
        if self._frames.rest:
            self._plan_reading()
        else:
            self._resume_reading()
        self._blocked.send_all()

    def eof_received(self) -> None:
        """The transport closes itself, as soon as the peer has taken what is written."""
        self._lose_all()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self)
        self._lose_all()
        self._blocked.end()
        # h2 is a circle of objects, which waits for the garbage collector.
        self._http.clear_outbound_data_buffer()

    def abort(self) -> None:
        self._transport.abort()

    # --- what the peer says

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._open(event)
            case DataReceived(stream_id=number, data=data, flow_controlled_length=size):
                if stream := self._streams.get(number):
                    stream.feed(data, size)
                else:
                    self.acknowledge(number, size)
            case StreamEnded(stream_id=number):
                if stream := self._streams.get(number):
                    stream.context.feed_end()
            case StreamReset(stream_id=number):
                if stream := self._streams.get(number):
                    stream.lose()
                if not event.remote_reset:
                    self._frames.made_reset()
            case WindowUpdated(stream_id=number) if number:
                self._blocked.send_more(number)
            case WindowUpdated() | RemoteSettingsChanged():
                self._room_granted = True
                if self._http.encoder.header_table_size > _HEADER_TABLE:
                    self._http.encoder.header_table_size = _HEADER_TABLE
            case _:
                pass

    def _open(self, request: RequestReceived) -> None:
        number, headers = request.stream_id, request.headers
        self._latest = number
        if self._leaving or len(self._streams) >= _CALLS:
            self.reset(number, ErrorCodes.REFUSED_STREAM)
            self._frames.made_reset()
            return
        if refused := _refusal(headers):
            with suppress(CallerGone):
                self.headers(number, refused, last=True)
            if request.stream_ended is None:
                self.reset(number, ErrorCodes.NO_ERROR)
            self._frames.made_reset()
            return
        self._frames.answered()
        stream = Stream(self, number)
        stream.context = Context(stream, headers, self._bounds.largest)
        self._streams[number] = stream
        stream.run(self._calls.create_task(self._serve(stream.context)))

    # --- what is said to the peer

    def headers(self, number: int, headers: Headers, *, last: bool) -> None:
        """Raises: CallerGone."""
        try:
            self._http.send_headers(number, headers, end_stream=last)
        except ProtocolError:
            raise CallerGone from None
        self._frames.answered()
        self.plan()

    def send(self, stream: Stream) -> None:
        try:
            moved = self._send(stream)
        except ProtocolError:
            stream.lose()
            return
        if moved:
            self._frames.answered()
            stream.moved_at = self._loop.time()
            self.plan()
        if stream.unsent:
            self._blocked.add(stream)
        else:
            self._blocked.discard(stream.number)
            stream.sent_all()

    def _send(self, stream: Stream) -> bool:
        """Whether anything has moved. Raises: ProtocolError."""
        number, moved = stream.number, False
        largest = min(self._http.max_outbound_frame_size, _AT_ONCE)
        while stream.unsent and self._writable:
            room = min(self._http.local_flow_control_window(number), largest)
            if room <= 0:
                break
            part = stream.unsent[0][:room]
            self._http.send_data(number, part)
            stream.sent(len(part))
            moved = True
            self._given += len(part)
            if self._given >= _AT_ONCE:
                self._flush()
        return moved

    def acknowledge(self, number: int, size: int) -> None:
        self._http.acknowledge_received_data(size, number)
        self.plan()

    def reset(self, number: int, code: ErrorCodes) -> None:
        with suppress(ProtocolError):
            self._http.reset_stream(number, code)
        self.plan()

    def plan(self) -> None:
        """One write for all that this turn of the loop has to say."""
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._planned = False
        self._given = 0
        self._write(self._http.data_to_send())

    def _write(self, data: bytes) -> None:
        if data and not self._ended and not self._transport.is_closing():
            self._written += len(data)
            self._transport.write(data)

    # --- what it waits for

    def taken(self) -> int:
        return self._written - self._transport.get_write_buffer_size()

    def holding(self) -> bool:
        return not self._writable or self._transport.is_closing()

    def has_room(self) -> bool:
        return self._writable and self._http.outbound_flow_control_window > 0

    def window(self, number: int) -> int:
        stream = self._http.streams.get(number)
        return 0 if stream is None else stream.outbound_flow_control_window

    def give_up(self) -> None:
        if not self._ended:
            self._log("the socket is not read")
        self.abort()

    # --- its end

    def ended(self, number: int) -> None:
        self._streams.pop(number, None)
        self._blocked.discard(number)
        self._unused_since = self._loop.time()
        self._end_if_done()

    def leave(self) -> None:
        """Takes no more calls, and closes the connection when those that run have ended."""
        if not self._leaving:
            self._leaving = True
            self._say_farewell(ErrorCodes.NO_ERROR)
            self._end_if_done()

    def stop(self, error: A2AError) -> None:
        """Ends the calls that run with this status."""
        for stream in tuple(self._streams.values()):
            stream.stop(error)

    def _end_if_done(self) -> None:
        if (self._leaving or self._frames.leaving) and not self._streams:
            self._end()

    def _end(self, reason: str | None = None) -> None:
        """As soon as the peer has taken what is said, and without it when it does not. `reason` is None for an end that is no
        fault of the peer."""
        if self._ended:
            return
        if reason is not None:
            self._log(reason)
        self._flush()
        self._ended = True
        self._lose_all()
        if self._frames.rest:
            self._frames.rest = b""
            self._resume_reading()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            with suppress(OSError):
                self._transport.write_eof()
        self._timer = self._loop.call_later(_LINGER_SECONDS, self._close)

    def _close(self) -> None:
        self._transport.close()
        self._blocked.watch()

    def _lose_all(self) -> None:
        """Of the calls and of the transport."""
        self._ended = True
        self._timer.cancel()
        self._beginning.cancel()
        for stream in tuple(self._streams.values()):
            stream.lose()
        self._blocked.watch()

    def _say_farewell(self, code: ErrorCodes) -> None:
        """Past h2, which would let no call go on."""
        self._flush()
        self._write(GoAwayFrame(0, last_stream_id=self._latest, error_code=code).serialize())

    def _log(self, reason: str) -> None:
        log.warning("connection.ended", peer=self.peer, reason=reason)

    def _begin(self) -> None:
        """Closes the connection of a peer that has not said what it speaks."""
        if not self._frames.begun:
            self._log("nothing was said")
            self.abort()

    def _listen(self) -> None:
        """Tries the connection when nothing is heard, and closes one that nobody uses."""
        # One that has too much to take is not read.
        heard, self._heard = self._heard or not self._writable, False
        if not heard and self._asked:
            self._log("a ping is not answered")
            self.abort()
            return
        self._asked = not heard
        if not self._streams and self._loop.time() - self._unused_since > _IDLE_SECONDS:
            self.leave()
            return
        if self._asked:
            self._http.ping(bytes(8))
            self._flush()
        wait = _ANSWER_SECONDS if self._asked else self._bounds.keepalive
        self._timer = self._loop.call_later(wait, self._listen)


def _refusal(headers: Headers) -> Headers | None:
    """The whole answer to a request that is not served as a call."""
    found = dict(headers)
    if status := requests.no_call(found):
        return ((b":status", status),)
    error = requests.fault(headers) or requests.timeout_fault(found)
    return None if error is None else refusal(error)
