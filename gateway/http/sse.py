"""Server-sent events from batches of encoded frames. Law: bytes are framed here and never parsed, a batch is one write, and
however the response ends, its stream is closed.

Not sse-starlette: that takes four times the CPU per stream, and its watcher for the end of the process polls and misses
servers that handle signals themselves (docs/adr/0006).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum, auto
from functools import partial

import msgspec
from starlette.types import Message, Receive, Scope, Send

from gateway.a2a.errors import A2AError, Unauthenticated
from gateway.foundation.off_loop import off_loop
from gateway.foundation.shutdown import Drain
from gateway.foundation.watchdog import Watchdog
from gateway.http.reply import JSON, Headers
from gateway.ledger.events import Frame
from gateway.operations.call import EventStream

OnRevocation = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""While its block runs, it calls the callback when the credential of the request is revoked."""

Translation = Callable[[int | None, bytes], bytes]

EVENT_STREAM = b"text/event-stream"

_HEADERS: Headers = (
    (b"content-type", EVENT_STREAM),
    (b"cache-control", b"no-cache, no-store"),
    (b"x-accel-buffering", b"no"),
)
_KEEP_ALIVE = b": keep-alive\n\n"
_DRAINING = b": draining\n\n"
_PIECE = 64 * 1024
"""Bytes that a reader takes within the send timeout, at the least."""


class Envelope(msgspec.Struct, frozen=True):
    """What a binding puts around a result or an event, its form of an error in a stream, and of no result (`empty`)."""

    head: bytes
    tail: bytes
    error: Callable[[A2AError], bytes]
    empty: bytes = b"{}"
    media_type: bytes = JSON

    def join(self, batch: list[Frame]) -> bytes:
        begin, end = b"data: " + self.head, self.tail + b"\n\n"
        return b"".join(
            [
                b"%b%b%b" % (begin, event, end) if number is None else b"id: %d\n%b%b%b" % (number, begin, event, end)
                for number, event in batch
            ]
        )

    def failure(self, error: A2AError) -> bytes:
        return b"event: error\ndata: %b\n\n" % self.error(error)


class StreamSettings(msgspec.Struct, frozen=True):
    """`drain`, once set, ends every stream. `refusal` is the error for the caller of what a stream raises. Times are in
    seconds."""

    drain: Drain
    refusal: Callable[[Exception], A2AError]
    keepalive: float
    send_timeout: float


async def translated(event: Translation, batch: list[Frame]) -> list[Frame]:
    """The batch with its events translated."""
    size = sum(len(payload) for _, payload in batch)
    return await off_loop(size, lambda: [(number, event(number, payload)) for number, payload in batch])


class _End(Enum):
    STREAM = auto()  # the stream is complete
    DRAIN = auto()  # the process is about to end
    REVOKED = auto()  # the credential of the caller is not valid any more
    CLIENT = auto()  # the client disconnected or reads nothing any more; it may resume later


class _Stuck(Exception):
    """The client has read nothing for the send timeout."""


class EventResponse:
    """The response of a streaming operation."""

    def __init__(
        self,
        stream: EventStream,
        envelope: Envelope,
        settings: StreamSettings,
        headers: Headers = (),
        on_revocation: OnRevocation = lambda _: nullcontext(),
        event: Translation | None = None,
    ) -> None:
        """`event` translates the logged events; without it they go out as they are."""
        self._on_revocation = on_revocation
        self._stream = stream
        self._envelope = envelope
        self._settings = settings
        self._event = event
        self._headers = [*_HEADERS, *headers]
        self._end = _End.STREAM
        self._reading = asyncio.timeout(None)
        self._open = True
        self._in_pieces = asyncio.Lock()
        """Held while a batch goes out in pieces: no comment may stand in the middle of an event."""
        self._rest = memoryview(b"")
        """What is left of a batch of which some has gone out."""

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._respond(receive, send)
            if self._end is not _End.CLIENT:
                await self._send(send, {"type": "http.response.body", "body": bytes(self._rest) + self._last()})
        except _Stuck:
            pass
        finally:
            await self._stream.aclose()

    async def _respond(self, receive: Receive, send: Send) -> None:
        """Sends the head and the events, until the stream is complete or `_stop` is called."""
        sending = Watchdog(self._settings.send_timeout, partial(self._stop, _End.CLIENT))
        try:
            async with self._reading:
                sending.begin()
                await send({"type": "http.response.start", "status": 200, "headers": self._headers})
                sending.end()
                async with asyncio.TaskGroup() as group:
                    watcher = group.create_task(self._watch(receive, send))
                    await self._pump(send, sending)
                    watcher.cancel()
        except TimeoutError:
            pass  # raised by `_stop`
        finally:
            self._open = False
            sending.close()

    def _last(self) -> bytes:
        match self._end:
            case _End.DRAIN:
                return _DRAINING
            case _End.REVOKED:
                return self._envelope.failure(Unauthenticated("the API key is not valid any more", presented=True))
            case _:
                return b""

    async def _pump(self, send: Send, sending: Watchdog) -> None:
        draining, revoked = partial(self._stop, _End.DRAIN), partial(self._stop, _End.REVOKED)
        with self._settings.drain.on_set(draining), self._on_revocation(revoked):
            batches = aiter(self._stream)
            while self._open and (chunk := await self._next(batches)) is not None:
                if len(chunk) > _PIECE:
                    await self._send_in_pieces(chunk, send, sending)
                elif chunk:
                    sending.begin()
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    sending.end()

    async def _send_in_pieces(self, batch: bytes, send: Send, sending: Watchdog) -> None:
        """A reader that takes some of it in time is not one that takes nothing."""
        sending.begin()
        async with self._in_pieces:
            rest = memoryview(batch)
            while rest:
                sending.begin()
                await send({"type": "http.response.body", "body": bytes(rest[:_PIECE]), "more_body": True})
                self._rest = rest = rest[_PIECE:]
                # What one step of the event loop writes goes out as one.
                await asyncio.sleep(0)
        sending.end()

    async def _next(self, batches: AsyncIterator[list[Frame]]) -> bytes | None:
        """The next batch as bytes, None at the end. The status has been sent already, so an error is an event, too."""
        try:
            batch = await anext(batches)
            if self._event is not None:
                batch = await translated(self._event, batch)
            return self._envelope.join(batch)
        except StopAsyncIteration:
            return None
        except Exception as error:  # noqa: BLE001  # none of its text may reach the caller
            failure = self._settings.refusal(error)
        self._open = False
        return self._envelope.failure(failure)

    async def _send(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._settings.send_timeout):
                await send(message)
        except TimeoutError:
            raise _Stuck from None

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Keeps the connection alive until the client disconnects."""
        while True:
            try:
                async with asyncio.timeout(self._settings.keepalive):
                    while (await receive())["type"] != "http.disconnect":
                        pass
                break
            except TimeoutError:
                pass
            if self._in_pieces.locked():
                continue
            try:
                async with self._in_pieces:
                    await self._send(send, {"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})
            except _Stuck:
                break
        self._stop(_End.CLIENT)

    def _stop(self, end: _End) -> None:
        if self._open:
            self._open = False
            self._end = end
            self._reading.reschedule(0)
