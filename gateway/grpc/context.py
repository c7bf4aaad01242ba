"""One call, and what it says to its caller. Law: once a call has ended, nothing is sent for it.

Source: the description of gRPC over HTTP/2, "Requests" and "Responses".
"""

import asyncio
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from urllib.parse import quote

import grpc

from gateway.a2a.errors import A2AError, InvalidRequest, TooManyMessages
from gateway.grpc.headers import LENGTH, length, timeout
from gateway.grpc.messages import Incoming, parts
from gateway.grpc.status import Status, status_of
from gateway.grpc.turns import Turn
from gateway.http.reply import Headers

Metadata = Sequence[tuple[str, str]]

_MESSAGE_TIMEOUT = 30.0
"""Seconds within which the message of a call has to arrive."""

_BEGIN: Headers = ((b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-accept-encoding", b"identity"))
_DONE = Status(grpc.StatusCode.OK, "", ())
_LATE = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed", ())

_PLAIN = "".join(chr(each) for each in range(0x20, 0x7F) if each != ord("%"))
"""What a message of a status says as it is."""


class CallerGone(Exception):
    """The call has ended, or can tell its caller nothing any more."""


class Stream(Protocol):
    """The stream of HTTP/2 that a call has. `peer` is the address of the other end, '' where it is not known."""

    peer: str

    def begin(self, headers: Headers) -> None:
        """The headers of the answer."""
        ...

    def turn(self, *, reads: bool) -> Turn:
        """The turn of its call among those of the connection."""
        ...

    async def send(self, parts: Iterable[bytes], patience: float) -> None:
        """Returns when the caller has taken all of it, but for what the sockets hold; ends the call when nothing moves for so
        many seconds."""
        ...

    def finish(self, headers: Headers) -> None:
        """The headers at the end, behind what the caller has still to take."""
        ...

    def cut(self, headers: Headers) -> None:
        """The headers at the end, instead of what the caller has still to take."""
        ...

    def taken(self, size: int) -> None:
        """Lets the caller send so many bytes more."""
        ...

    def keep(self, size: int) -> None:
        """So many bytes of the caller are kept, in all."""
        ...

    def reset(self) -> None:
        """Ends the stream at once."""
        ...


class Context:
    """A call, from its headers on. While it is `busy`, it goes on when its caller leaves. `carried_out` makes the error of one
    whose work is done and whose answer its caller does not take; None before, and where the call may be made again."""

    def __init__(self, stream: Stream, headers: Headers, largest: int) -> None:
        """`largest` is the number of bytes of the largest message of the caller."""
        found = dict(headers)
        self.path = found[b":path"].decode(errors="replace")
        self.metadata: Headers = [
            (name, value.strip(b" \t"))
            for name, value in headers
            if name[:1] != b":" and name[-4:] != b"-bin" and name != LENGTH
        ]
        self.timeout = timeout(found)
        self._stream = stream
        self._incoming = Incoming(largest, length(found))
        self._untaken = self._kept = 0
        self._arrival: asyncio.Future[None] | None = None
        self._initial: Headers = _BEGIN
        self._begun = False
        self._status = _DONE
        self._ended = False
        self.busy = False
        self.carried_out: Callable[[], A2AError] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing can be said to the caller any more."""
        return self._ended

    @property
    def peer(self) -> str:
        return self._stream.peer

    @property
    def sending(self) -> bool:
        """Whether the caller has more to send."""
        return not self._incoming.ended

    @property
    def complete(self) -> bool:
        """Whether the caller has sent nothing more than what has been read, and sends no more."""
        return self._incoming.complete

    @property
    def heard(self) -> bool:
        """Whether a message of the caller has been read."""
        return self._incoming.begun

    # --- what comes

    def feed(self, data: bytes, size: int) -> None:
        """Of the message, and its size on the wire."""
        if self._ended:
            self._stream.taken(size)
            return
        self._incoming.feed(data)
        self._untaken += size
        self._count()
        self._wake()

    def feed_end(self) -> None:
        self._incoming.ended = True
        self._wake()

    def arrived(self) -> bytes | None:
        """The next message if it is there. Raises: PayloadTooLarge, EncodingNotSupported, InvalidRequest."""
        message = self._incoming.next()
        if message is not None:
            self._count()
            self._take()
        return message

    def keep(self, size: int) -> None:
        """So many bytes of messages that have been read are kept still, and count as if they were being received."""
        self._kept = size
        self._count()

    def _count(self) -> None:
        if not self._ended:
            self._stream.keep(self._kept + self._incoming.size)

    def bound(self, largest: int) -> None:
        """No message of the caller may have more bytes."""
        self._incoming.largest = min(largest, self._incoming.largest)

    async def read(self) -> bytes | None:
        """The next message, None after the last. Raises: CallerGone, PayloadTooLarge, EncodingNotSupported, InvalidRequest."""
        while (message := self.arrived()) is None and not self._incoming.ended:
            if self._ended:
                raise CallerGone
            # Only what is waited for is let in: a caller that is not admitted sends no more than one window.
            self._take()
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        self._take()
        return message

    def _take(self) -> None:
        if self._untaken:
            self._stream.taken(self._untaken)
            self._untaken = 0

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # --- what goes

    def send_metadata(self, metadata: Metadata) -> None:
        """The initial metadata, which go out with the first message."""
        self._initial = [*self._initial, *((name.encode(), value.encode()) for name, value in metadata)]

    def turn(self, *, reads: bool) -> Turn:
        """What `async with` waits for before the work of the call begins. `reads`: the work is no more than reading."""
        return self._stream.turn(reads=reads)

    async def write(self, messages: Sequence[bytes], patience: float) -> None:
        """All of them in as few frames as there can be, to a caller that is waited for so many seconds when nothing moves.

        Raises: CallerGone.
        """
        if not self._begun and not self._ended:
            self._begun = True
            self._stream.begin(self._initial)
        if self._ended:
            raise CallerGone
        await self._stream.send(parts(messages), patience)

    def refuse(self, error: A2AError) -> None:
        """The status that the call will end with."""
        self._status = status_of(error)

    def finish(self) -> None:
        """Ends the call with its status."""
        if not self._ended:
            self._ended = True
            self._stream.finish(self._end())
            self._take()

    def expire(self) -> None:
        """Ends the call with the status of one whose deadline has passed."""
        self._cut(_LATE)

    def give_up(self, error: A2AError) -> None:
        """Ends the call with this status, or that of one which is carried out, whatever its caller has still to take."""
        self._cut(status_of(error if self.carried_out is None else self.carried_out()))

    def _cut(self, status: Status) -> None:
        if not self._ended:
            self._ended = True
            self._status = status
            self._stream.cut(self._end())
            self._take()

    def _end(self) -> Headers:
        return _last(self._status) if self._begun else [*_BEGIN, *_last(self._status)]

    def abandon(self) -> None:
        """Ends the call without a status."""
        if not self._ended:
            self._ended = True
            self._stream.reset()
            self._take()

    def lose(self) -> None:
        """The caller has ended the call, or its connection."""
        self._ended = True
        self._take()
        self._wake()


async def receive(context: Context) -> bytes:
    """The one message of a call, whose caller sends no more; it is kept until `Context.keep` says otherwise.

    Raises: InvalidRequest, TooManyMessages, and as `Context.read`.
    """
    message = context.arrived()
    if message is not None:
        context.keep(len(message))
        if context.complete:
            return message
    try:
        async with asyncio.timeout(_MESSAGE_TIMEOUT):
            if message is None:
                message = await context.read()
                context.keep(len(message or b""))
            further = None if message is None else await context.read()
    except TimeoutError:
        raise InvalidRequest(f"the message did not arrive within {_MESSAGE_TIMEOUT:g} s") from None
    if message is None:
        raise InvalidRequest("the call has no message")
    if further is not None:
        raise TooManyMessages("the call has more than one message")
    return message


def refusal(error: A2AError) -> Headers:
    """The whole answer to a call that is not taken."""
    return [*_BEGIN, *_last(status_of(error))]


def _last(status: Status) -> Headers:
    code, text, metadata = status
    return [
        (b"grpc-status", b"%d" % code.value[0]),
        *([(b"grpc-message", quote(text, safe=_PLAIN).encode())] if text else []),
        *((name.encode(), b2a_base64(value, newline=False).rstrip(b"=")) for name, value in metadata),
    ]
