"""How long a peer is waited for that takes little, or nothing."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from gateway.grpc.blocked import Blocked

PATIENCE = 8.0
TICK = PATIENCE / 8


class Time:
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        self._planned.append((self.now + seconds, call))

    def move(self) -> None:
        """By one look."""
        self.now += TICK
        due = [call for at, call in self._planned if at <= self.now]
        self._planned = [each for each in self._planned if each[0] > self.now]
        for call in due:
            call()

    @property
    def idle(self) -> bool:
        return not self._planned


class Socket:
    """Carries streams as the fields say."""

    def __init__(self) -> None:
        self.bytes, self.full, self.windows, self.given_up = 0, False, dict[int, int](), False

    def taken(self) -> int:
        return self.bytes

    def holding(self) -> bool:
        return self.full

    def has_room(self) -> bool:
        return not self.full

    def window(self, number: int) -> int:
        return self.windows.get(number, 0)

    def give_up(self) -> None:
        self.given_up = True


class Waiter:
    """A stream that has more to send for ever."""

    def __init__(self, number: int) -> None:
        self.number, self.patience, self.moved_at = number, PATIENCE, 0.0
        self.asked, self.given_up = 0, False

    def send_more(self) -> None:
        self.asked += 1

    def give_up(self) -> None:
        self.given_up = True


def blocked(*streams: Waiter) -> tuple[Blocked, Time, Socket]:
    time, socket = Time(), Socket()
    found = Blocked(socket, PATIENCE, cast("asyncio.AbstractEventLoop", time))
    for stream in streams:
        found.add(stream)
    return found, time, socket


def test_a_stream_that_takes_nothing_is_given_up() -> None:
    stream = Waiter(1)
    _, time, _ = blocked(stream)
    for _ in range(7):
        time.move()
    assert not stream.given_up
    time.move()
    assert stream.given_up


def test_a_stream_that_takes_anything_is_waited_for_as_long_as_it_does() -> None:
    stream = Waiter(1)
    _, time, _ = blocked(stream)
    for _ in range(20):
        for _ in range(6):
            time.move()
        stream.moved_at = time.now
    assert not stream.given_up


def test_a_stream_that_has_a_window_waits_with_its_connection() -> None:
    served, closed = Waiter(1), Waiter(3)
    _, time, socket = blocked(served, closed)
    socket.windows[1] = 100
    for _ in range(40):
        socket.bytes += 1
        time.move()
    assert (served.given_up, closed.given_up) == (False, True)
    for _ in range(9):
        time.move()
    assert served.given_up


def test_a_full_socket_is_waited_for_as_long_as_it_is_read() -> None:
    found, time, socket = blocked()
    socket.full = True
    found.watch()
    for _ in range(40):
        socket.bytes += 1
        time.move()
    assert not socket.given_up
    for _ in range(9):
        time.move()
    assert socket.given_up


def test_nothing_is_looked_at_when_nothing_waits() -> None:
    stream = Waiter(1)
    found, time, _ = blocked(stream)
    found.discard(1)
    time.move()
    assert time.idle


def test_the_first_that_waits_is_the_last_the_next_time() -> None:
    order: list[int] = []

    class Noted(Waiter):
        def send_more(self) -> None:
            order.append(self.number)

    found, _, _ = blocked(Noted(1), Noted(3), Noted(5))
    found.send_all()
    found.send_all()
    assert order == [1, 3, 5, 3, 5, 1]


def test_nobody_is_asked_when_there_is_no_room() -> None:
    stream = Waiter(1)
    found, _, socket = blocked(stream)
    socket.full = True
    found.send_all()
    assert not stream.asked
