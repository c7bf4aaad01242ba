"""A stream of HTTP/2 with its call. Law: a call that ends frees what it holds, and tells its caller where it still can."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

from h2.errors import ErrorCodes

from gateway.a2a.errors import A2AError, Busy
from gateway.grpc.arrivals import TOO_MANY, Arrivals
from gateway.grpc.context import CallerGone, Context
from gateway.grpc.turns import Turn, Turns
from gateway.http.reply import Headers

_STUCK = Busy("The answer was not taken in time.")


class Carrier(Protocol):
    """The connection of a stream."""

    peer: str
    turns: Turns
    arrivals: Arrivals

    def headers(self, number: int, headers: Headers, *, last: bool) -> None:
        """Raises: CallerGone."""
        ...

    def send(self, stream: "Stream") -> None:
        """As much as the peer takes, and the rest when it takes more."""
        ...

    def acknowledge(self, number: int, size: int) -> None:
        """So many bytes of the peer are dealt with."""
        ...

    def reset(self, number: int, code: ErrorCodes) -> None: ...

    def ended(self, number: int) -> None:
        """The stream has ended."""
        ...

    def unheard(self) -> None:
        """A call has ended without its message."""
        ...


class Stream:
    """`unsent`: what the peer has still to take."""

    __slots__ = (
        "_carrier",
        "_kept",
        "_last",
        "_loop",
        "_room",
        "_task",
        "_timer",
        "context",
        "moved_at",
        "number",
        "patience",
        "peer",
        "unsent",
    )

    context: Context

    def __init__(self, carrier: Carrier, number: int) -> None:
        self._carrier = carrier
        self._loop = asyncio.get_running_loop()
        self._last: Headers | None = None
        self._room: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.number = number
        self.peer = carrier.peer
        self._kept = 0
        self.patience = self.moved_at = 0.0
        self.unsent: deque[memoryview] = deque()

    def run(self, task: asyncio.Task[Any]) -> None:
        """`task` is that of the call."""
        self._task = task
        if self.context.timeout is not None:
            self._timer = self._loop.call_later(self.context.timeout, self._expire)

    # --- what the call says

    def turn(self, *, reads: bool) -> Turn:
        return self._carrier.turns.turn(reads=reads)

    def begin(self, headers: Headers) -> None:
        try:
            self._carrier.headers(self.number, headers, last=False)
        except CallerGone:
            self.lose()

    async def send(self, parts: Iterable[bytes], patience: float) -> None:
        self.patience = patience
        self.unsent.extend(map(memoryview, parts))
        self._carrier.turns.hold(sum(map(len, self.unsent)))
        self._carrier.send(self)
        if self.unsent:
            self._room = self._loop.create_future()
            await self._room

    def finish(self, headers: Headers) -> None:
        self._stop_timer()
        if self.unsent:
            # They stand behind the message that the caller has not taken yet.
            self._last = headers
        else:
            self._end(headers)

    def cut(self, headers: Headers) -> None:
        self._drop()
        self._end(headers)

    def taken(self, size: int) -> None:
        self._carrier.acknowledge(self.number, size)

    def keep(self, size: int) -> None:
        self._carrier.arrivals.hold(size - self._kept)
        self._kept = size

    def reset(self) -> None:
        self._carrier.reset(self.number, ErrorCodes.CANCEL)
        self._close()

    # --- what the connection says

    def feed(self, data: bytes, size: int) -> None:
        """Of the call, and its size on the wire."""
        self.context.feed(data, size)
        if self._carrier.arrivals.refuses(self._kept):
            self.stop(TOO_MANY)

    def send_more(self) -> None:
        self._carrier.send(self)

    def sent(self, size: int) -> None:
        """So much of the first part."""
        first = self.unsent[0]
        if size == len(first):
            self.unsent.popleft()
        else:
            self.unsent[0] = first[size:]
        self._carrier.turns.release(size)

    def sent_all(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._last is not None:
            self._end(self._last)

    def lose(self) -> None:
        """Ends the call: nothing can be sent any more."""
        context, task = self.context, self._task
        context.lose()
        self._close()
        _cancel(context, task)

    def give_up(self) -> None:
        self.stop(_STUCK)

    def stop(self, error: A2AError) -> None:
        """Ends the call with this status, unless it has one already."""
        if self._last is not None:
            self.cut(self._last)
        else:
            context, task = self.context, self._task
            context.give_up(error)
            _cancel(context, task)

    # --- its end

    def _expire(self) -> None:
        context, task = self.context, self._task
        context.expire()
        _cancel(context, task)

    def _end(self, headers: Headers) -> None:
        with suppress(CallerGone):
            self._carrier.headers(self.number, headers, last=True)
        if self.context.sending:
            self._carrier.reset(self.number, ErrorCodes.NO_ERROR)
        if not self.context.heard:
            self._carrier.unheard()
        self._close()

    def _close(self) -> None:
        self._drop()
        self.keep(0)
        self._last = None
        # The call and its task know the stream: a circle of them would wait for the garbage collector.
        del self.context, self._task
        self._room = None
        self._stop_timer()
        self._carrier.ended(self.number)

    def _drop(self) -> None:
        if self.unsent:
            self._carrier.turns.release(sum(map(len, self.unsent)))
            self.unsent.clear()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _cancel(context: Context, task: asyncio.Task[Any]) -> None:
    """What the call has begun is done first: then it sees that it has ended."""
    if not context.busy:
        task.cancel()
