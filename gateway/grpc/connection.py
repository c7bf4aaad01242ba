"""A connection of HTTP/2 with its calls, over h2. Law: what is there at once is one write; a peer that takes nothing is waited
for no longer than over HTTP, and is read no further meanwhile; a call that ends frees what it holds.

Source: RFC 9113.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, cast

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

from gateway.grpc.context import CallerGone, Context
from gateway.grpc.frames import Flood, Frames
from gateway.http.reply import Headers

_CALLS = 1000
"""Open calls of one connection. More wait in the client."""

_STREAM_WINDOW, _WINDOW = 2**18, 2**20
"""Bytes that a caller may send before they are asked for, on one call and on all of a connection."""

_ANSWER_SECONDS = 20.0
"""Within which a peer answers a ping."""

_IDLE_SECONDS = 300.0
"""After which a connection without a call is closed."""

_GRPC = b"application/grpc"

_CONFIGURATION = H2Configuration(
    client_side=False, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
)
"""What goes out is the gateway's own."""


class Bounds(NamedTuple):
    """`largest` is the number of bytes of the largest message of a caller. `keepalive` is the silence in seconds after which a
    connection is tried, `blocked` the number of seconds after which a caller is given up that reads nothing."""

    largest: int
    keepalive: float
    blocked: float


Serve = Callable[[Context], Coroutine[Any, Any, None]]
"""Runs a call until it has ended; raises nothing."""


class Connection(asyncio.Protocol):
    def __init__(
        self,
        serve: Serve,
        calls: asyncio.TaskGroup,
        bounds: Bounds,
        opened: "Callable[[Connection], None]",
        closed: "Callable[[Connection], None]",
    ) -> None:
        """`calls` runs the calls."""
        self._serve = serve
        self._calls = calls
        self._bounds = bounds
        self._opened = opened
        self._closed = closed
        self._streams: dict[int, _Stream] = {}
        self._blocked: dict[int, _Stream] = {}
        self._frames = Frames()
        self._http = H2Connection(_CONFIGURATION)
        self._http.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: _CALLS,
                SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
            },
        )
        self._loop = asyncio.get_running_loop()
        self._leaving = False
        self._writable = True
        self._planned = False
        self._room_granted = False
        self._latest = 0
        self._heard = False
        self._asked = False
        self.peer = ""

    # --- the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = address[0].removeprefix("::ffff:") if address else ""
        self._opened(self)
        self._unused_since = self._loop.time()
        self._stuck: asyncio.TimerHandle | None = None
        self._look = self._loop.call_later(self._bounds.keepalive, self._listen)
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_WINDOW - self._http.inbound_flow_control_window)
        self._flush()

    @property
    def descriptor(self) -> int:
        descriptor: int = self._transport.get_extra_info("socket").fileno()
        return descriptor

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            events = self._http.receive_data(self._frames.passed(data))
        except ProtocolError:
            # h2 has said so to the peer.
            self._close()
            return
        except Flood:
            self._say_farewell(ErrorCodes.ENHANCE_YOUR_CALM)
            self._close()
            return
        for event in events:
            self._take(event)
        if self._room_granted:
            self._room_granted = False
            self._send_blocked()
        self._close_if_done()
        self.plan()

    def pause_writing(self) -> None:
        self._writable = False
        self._transport.pause_reading()
        self._limit_wait()

    def resume_writing(self) -> None:
        self._writable = True
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._end_wait()
        self._send_blocked()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self)
        self._look.cancel()
        self._end_wait()
        self._lose_all()

    def abort(self) -> None:
        self._transport.abort()

    # --- what the peer says

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=number, headers=headers):
                self._latest = number
                if self._leaving:
                    self.reset(number, ErrorCodes.REFUSED_STREAM)
                else:
                    self._open(number, headers)
            case DataReceived(stream_id=number, data=data, flow_controlled_length=size):
                if stream := self._streams.get(number):
                    stream.context.feed(data, size)
                else:
                    self._http.acknowledge_received_data(size, number)
            case StreamEnded(stream_id=number):
                if stream := self._streams.get(number):
                    stream.context.feed_end()
            case StreamReset(stream_id=number):
                if stream := self._streams.get(number):
                    stream.lose()
            case WindowUpdated(stream_id=number) if number:
                if stream := self._blocked.get(number):
                    self.send(stream)
            case WindowUpdated() | RemoteSettingsChanged():
                self._room_granted = True
            case _:
                pass

    def _open(self, number: int, headers: Headers) -> None:
        found = dict(headers)
        status = _refusal(found)
        if status is not None:
            with suppress(CallerGone):
                self.headers(number, [(b":status", status)], last=True)
            return
        stream = _Stream(self, number)
        stream.context = Context(stream, headers, self._bounds.largest)
        self._streams[number] = stream
        stream.run(self._calls.create_task(self._serve(stream.context)), self._loop)

    # --- what is said to the peer

    def headers(self, number: int, headers: Headers, *, last: bool) -> None:
        """Raises: CallerGone."""
        try:
            self._http.send_headers(number, headers, end_stream=last)
        except ProtocolError:
            raise CallerGone from None
        self._frames.written()
        self.plan()

    def send(self, stream: "_Stream") -> None:
        """What the stream has, as far as the peer grants it a window; the rest when it grants more."""
        if self._writable and self._send(stream):
            self._blocked.pop(stream.number, None)
        else:
            self._blocked[stream.number] = stream
        self.plan()

    def _send(self, stream: "_Stream") -> bool:
        """Whether all is sent."""
        number, sent, whole = stream.number, 0, len(stream.unsent)
        try:
            while sent < whole:
                room = min(self._http.local_flow_control_window(number), self._http.max_outbound_frame_size)
                if room <= 0:
                    break
                self._http.send_data(number, stream.unsent[sent : sent + room])
                sent += room
        except ProtocolError:
            stream.lose()
            return True
        if sent:
            self._frames.written()
            stream.unsent = stream.unsent[sent:]
        if stream.unsent:
            return False
        stream.sent()
        return True

    def _send_blocked(self) -> None:
        for stream in tuple(self._blocked.values()):
            self.send(stream)
        if self._blocked:
            # The one that was first is the last when there is room again.
            first = next(iter(self._blocked))
            self._blocked[first] = self._blocked.pop(first)

    def taken(self, number: int, size: int) -> None:
        self._http.acknowledge_received_data(size, number)
        self.plan()

    def reset(self, number: int, code: ErrorCodes) -> None:
        try:
            self._http.reset_stream(number, code)
        except ProtocolError:
            return
        self.plan()

    def plan(self) -> None:
        """One write for all that this turn of the loop has to say."""
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._planned = False
        data = self._http.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def give_up_later(self, stream: "_Stream") -> asyncio.TimerHandle:
        """For one whose peer takes nothing any more."""
        return self._loop.call_later(self._bounds.blocked, stream.reset)

    # --- its end

    def ended(self, number: int) -> None:
        """The stream has ended."""
        self._streams.pop(number, None)
        self._blocked.pop(number, None)
        self._unused_since = self._loop.time()
        self._close_if_done()

    def leave(self) -> None:
        """Takes no more calls, and closes the connection when those that run have ended."""
        if not self._leaving:
            self._leaving = True
            self._say_farewell(ErrorCodes.NO_ERROR)
            self._close_if_done()

    def _close_if_done(self) -> None:
        if (self._leaving or self._frames.leaving) and not self._streams:
            self._close()

    def _close(self) -> None:
        """As soon as the peer has taken what is said, and without it when it does not."""
        if not self._transport.is_closing():
            self._flush()
            self._transport.close()
            self._look.cancel()
            self._limit_wait()
            self._lose_all()

    def _lose_all(self) -> None:
        for stream in tuple(self._streams.values()):
            stream.lose()

    def _limit_wait(self) -> None:
        self._end_wait()
        self._stuck = self._loop.call_later(self._bounds.blocked, self.abort)

    def _end_wait(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()

    def _say_farewell(self, code: ErrorCodes) -> None:
        """Past h2, which would let no call go on."""
        self._flush()
        if not self._transport.is_closing():
            self._transport.write(GoAwayFrame(0, last_stream_id=self._latest, error_code=code).serialize())

    def _listen(self) -> None:
        """Tries the connection when nothing is heard, and closes one that nobody uses."""
        heard, self._heard = self._heard, False
        if not heard and self._asked:
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
        self._look = self._loop.call_later(wait, self._listen)


class _Stream:
    """A stream of HTTP/2 with its call."""

    __slots__ = ("_connection", "_last", "_room", "_task", "_timer", "context", "number", "peer", "unsent")

    context: Context

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._last: Headers | None = None
        self._room: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.number = number
        self.peer = connection.peer
        self.unsent: bytes | memoryview = b""

    def run(self, task: asyncio.Task[None], loop: asyncio.AbstractEventLoop) -> None:
        self._task = task
        if self.context.timeout is not None:
            self._timer = loop.call_later(self.context.timeout, self._expire)

    def begin(self, headers: Headers) -> None:
        try:
            self._connection.headers(self.number, headers, last=False)
        except CallerGone:
            self.lose()

    async def send(self, data: bytes) -> None:
        self.unsent = memoryview(data)
        self._connection.send(self)
        if self.unsent:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def finish(self, headers: Headers) -> None:
        if self.unsent:
            # They stand behind the message that the caller has not taken yet.
            self._last = headers
            self._stop_timer()
            self._timer = self._connection.give_up_later(self)
            return
        with suppress(CallerGone):
            self._connection.headers(self.number, headers, last=True)
        if self.context.sending:
            self._connection.reset(self.number, ErrorCodes.NO_ERROR)
        self._close()

    def taken(self, size: int) -> None:
        self._connection.taken(self.number, size)

    def reset(self) -> None:
        self._connection.reset(self.number, ErrorCodes.CANCEL)
        self._close()

    def sent(self) -> None:
        """All that there was."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._last is not None:
            self.finish(self._last)

    def lose(self) -> None:
        """Ends the call: nothing can be sent any more."""
        self.context.lose()
        self._close()
        self._task.cancel()

    def _expire(self) -> None:
        if self.unsent:
            self.context.abandon()
        else:
            self.context.expire()
        self._task.cancel()

    def _close(self) -> None:
        self.unsent, self._last = b"", None
        # The call knows its stream: a circle of both would wait for the garbage collector.
        del self.context
        self._stop_timer()
        self._connection.ended(self.number)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _refusal(headers: dict[bytes, bytes]) -> bytes | None:
    """The status of HTTP for a request that is no call."""
    if headers.get(b":method") != b"POST":
        return b"405"
    return None if headers.get(b"content-type", b"").startswith(_GRPC) else b"415"
