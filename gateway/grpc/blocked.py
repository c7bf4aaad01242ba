"""The streams whose peer has still to take something. Law: a peer is waited for as long as anything moves, and no longer than
a bound when nothing does.

A stream that has a window waits for its connection, so it waits on while the connection takes anything.
"""

import asyncio
from typing import Protocol

_LOOKS = 8
"""In the time that a peer is waited for."""


class Waiting(Protocol):
    """A stream. `patience` is the number of seconds that its peer is waited for, `moved_at` the time when it last took
    something."""

    number: int
    patience: float
    moved_at: float

    def send_more(self) -> None:
        """As much as the peer takes."""
        ...

    def give_up(self) -> None:
        """The peer is not waited for any longer."""
        ...


class Carrier(Protocol):
    """What carries the streams."""

    def taken(self) -> int:
        """The number of bytes that the socket has taken, in all."""
        ...

    def holding(self) -> bool:
        """Whether it waits for the socket."""
        ...

    def has_room(self) -> bool:
        """Whether the peer and the socket take anything."""
        ...

    def window(self, number: int) -> int:
        """Bytes that the peer takes on this stream, whatever it takes on the connection."""
        ...

    def give_up(self) -> None:
        """The socket is not waited for any longer."""
        ...


class Blocked:
    """Of one connection, in the order in which they are served."""

    __slots__ = ("_carrier", "_loop", "_moved_at", "_patience", "_streams", "_taken", "_timer")

    def __init__(self, carrier: Carrier, patience: float, loop: asyncio.AbstractEventLoop) -> None:
        """`patience` is the number of seconds that the socket is waited for."""
        self._carrier = carrier
        self._patience = patience
        self._loop = loop
        self._streams: dict[int, Waiting] = {}
        self._taken = 0
        self._moved_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: Waiting) -> None:
        if stream.number not in self._streams:
            self._streams[stream.number] = stream
            stream.moved_at = self._loop.time()
            self.watch()

    def discard(self, number: int) -> None:
        self._streams.pop(number, None)

    def send_more(self, number: int) -> None:
        """The peer takes more on this stream."""
        if stream := self._streams.get(number):
            stream.send_more()

    def send_all(self) -> None:
        """The peer takes more on the connection."""
        for stream in tuple(self._streams.values()):
            if not self._carrier.has_room():
                break
            stream.send_more()
        if self._streams:
            # The one that was first is the last when there is room again.
            first = next(iter(self._streams))
            self._streams[first] = self._streams.pop(first)

    def watch(self) -> None:
        """The peer has something to take."""
        if self._timer is None:
            self._taken, self._moved_at = self._carrier.taken(), self._loop.time()
            self._plan()

    def end(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
        # The carrier knows this object: a circle of both would wait for the garbage collector.
        del self._carrier

    def _plan(self) -> None:
        self._timer = self._loop.call_later(self._patience / _LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        now, taken = self._loop.time(), self._carrier.taken()
        if taken != self._taken:
            self._taken, self._moved_at = taken, now
        holding = self._carrier.holding()
        if holding and now - self._moved_at >= self._patience:
            self._carrier.give_up()
            return
        for stream in tuple(self._streams.values()):
            of_connection = holding or self._carrier.window(stream.number) > 0
            moved_at = max(stream.moved_at, self._moved_at) if of_connection else stream.moved_at
            if now - moved_at >= stream.patience:
                stream.give_up()
        if self._streams or self._carrier.holding():
            self._plan()
