"""The gateway's end of the calls of a Python function, which runs on an event loop of its own.

Law: the function is ahead of the reader of its values by a bounded weight; nothing that the function does, or leaves
undone, keeps the gateway's loop waiting.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from gateway.ports.adapter import TextDelta
from gateway.ports.tools import ConsentPage

WINDOW = 64
"""The weight of values that a call may be ahead of its reader; one value more may always be on its way."""

_RETURNED_AT = WINDOW // 2
_TEXT_UNIT_SHIFT = 12
_HEAVY = 8


class Failure(msgspec.Struct, frozen=True):
    """The reason why a call ended without a result. `kind` is an ErrorClass, or one of `adapters.python.tool`. `detail`
    is for the operator's log. `pages` are those of a tool that needs a consent. `retry_after`: seconds until the process of
    the function is started again."""

    kind: str
    detail: str
    pages: tuple[ConsentPage, ...] = ()
    retry_after: float | None = None


class CallFailed(Exception):
    """A call ended with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class WorkerPort(Protocol):
    """The way to the loop that runs the function. A call is known by its number."""

    def start(self, number: int, given: bytes) -> None:
        """`given` is the argument of the call, as JSON."""

    def give(self, number: int, weight: int) -> None:
        """The reader has read values of this weight."""

    def stop(self, number: int) -> None: ...


class GatewayPort(Protocol):
    """The way back. May be used in any thread; the order of one thread's uses is kept."""

    def value(self, number: int, value: object) -> None: ...

    def end(self, number: int, failure: Failure | None) -> None:
        """Nothing follows for this call."""


def weight(value: object) -> int:
    """1 for each 4096 characters of a text. Other values are rare, and may be large."""
    return 1 + (len(value.text) >> _TEXT_UNIT_SHIFT) if type(value) is TextDelta else _HEAVY


class Call:
    """One call, from its start until it is closed."""

    __slots__ = ("_arrived", "_ended", "_failure", "_number", "_read", "_values", "_worker")

    def __init__(self, number: int, worker: WorkerPort) -> None:
        self._number = number
        self._worker = worker
        self._values: deque[object] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._failure: Failure | None = None
        self._read = 0

    def add(self, value: object) -> None:
        self._values.append(value)
        self._arrived.set()

    def end(self, failure: Failure | None) -> None:
        self._ended, self._failure = True, failure
        self._arrived.set()

    async def more(self) -> bool:
        """Waits for a value; False at the end. Raises: CallFailed."""
        while not self._values:
            if self._ended:
                if self._failure is not None:
                    raise CallFailed(self._failure)
                return False
            await self._news()
        return True

    def take(self) -> Iterator[object]:
        """The values that are here."""
        while self._values:
            value = self._values.popleft()
            self._read += weight(value)
            if self._read >= _RETURNED_AT and not self._ended:
                self._worker.give(self._number, self._read)
                self._read = 0
            yield value

    async def stop(self, grace: float | None = None) -> bool:
        """Whether the call ends within so many seconds; without `grace`, returns when it has ended."""
        if self._ended:
            return True
        self._worker.stop(self._number)
        try:
            async with asyncio.timeout(grace):
                while not self._ended:
                    await self._news()
        except TimeoutError:
            return False
        return True

    async def _news(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()


class Calls:
    """The open calls of one worker: a GatewayPort for the gateway's own loop."""

    def __init__(self, worker: WorkerPort) -> None:
        self._worker = worker
        self._open: dict[int, Call] = {}
        self._latest = 0

    @contextmanager
    def begun(self, given: bytes) -> Iterator[Call]:
        """A new call; what comes for it after the block is thrown away."""
        self._latest = number = self._latest + 1
        call = self._open[number] = Call(number, self._worker)
        self._worker.start(number, given)
        try:
            yield call
        finally:
            del self._open[number]

    def value(self, number: int, value: object) -> None:
        call = self._open.get(number)
        if call is not None:
            call.add(value)

    def end(self, number: int, failure: Failure | None) -> None:
        call = self._open.get(number)
        if call is not None:
            call.end(failure)

    def fail_all(self, failure: Failure) -> None:
        """The worker is gone."""
        for call in self._open.values():
            call.end(failure)
