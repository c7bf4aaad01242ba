"""When the calls of a connection begin. Law: a peer that takes no answers gets nothing further read; all other calls begin at
once, the cancellation of a task above all.

A request of a hundred bytes may have an answer of many megabytes, which is in memory until its caller has taken it.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self

from gateway.a2a.errors import A2AError, TooManyRequests, Unanswered
from gateway.foundation.sizes import LARGE

_READS = 16
"""Calls of one connection that only read, at once, from their begin until their answer is taken."""

_HELD = 2**24
"""Bytes that a connection may have to take still when a read begins."""

_MOST = 2**26
"""Beyond which nothing that does more than reading, which never waits for others to end, is begun or answered."""

_LARGEST_MADE = 2**23
"""What an answer counts at most before its size is known."""

_ALL_HELD = 2**28
"""The same in the whole process. Beyond, a connection begins a read when it has taken all, and one by one."""


_MADE_AT_ONCE = 8
"""Answers to what only reads, in the whole process, up to the moment at which they count as bytes."""

_WRITTEN_AT_ONCE = 1
"""Large answers that are being written, in the whole process: each may take six times the bytes that it is stored in, twice."""


def too_many() -> A2AError:
    """What a caller is told when nothing is done for its call."""
    return TooManyRequests("This connection has too many answers to take; try again.", retry_after=1)


def not_given(task: str | None) -> A2AError:
    """What a caller is told whose call is carried out, and whose answer it does not take. `task` is the id of the task that the
    answer is about, None where there is none."""
    return Unanswered(
        "The call was carried out, but its answer was not taken on this connection: ask for the task, or send the message "
        "again under the same Idempotency-Key.",
        metadata=None if task is None else {"taskId": task},
    )


class Held:
    """The bytes of messages that callers have still to take, in the whole process."""

    __slots__ = ("making", "size", "writing")

    def __init__(self) -> None:
        self.size = 0
        self.making = asyncio.Semaphore(_MADE_AT_ONCE)
        self.writing = asyncio.Semaphore(_WRITTEN_AT_ONCE)

    @property
    def full(self) -> bool:
        return self.size >= _ALL_HELD


class Turns:
    """Of one connection. `held` is the number of bytes that it has still to take."""

    __slots__ = ("_all", "_making", "_reading", "_waiting", "held")

    def __init__(self, held: Held) -> None:
        self._all = held
        self.held = 0
        self._reading = self._making = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def turn(self, *, reads: bool) -> "Turn":
        """That of a call. `reads`: its work is no more than reading."""
        return Turn(self, reads)

    def hold(self, size: int) -> None:
        """Of a message that the peer has to take."""
        self.held += size
        self._all.size += size

    def drop(self, size: int) -> None:
        """They do not count any more; what takes their place counts next."""
        self.held -= size
        self._all.size -= size

    def release(self, size: int) -> None:
        """The peer has taken them, or gets them no more."""
        self.drop(size)
        self.wake()

    @property
    def overfull(self) -> bool:
        """Whether the peer has too much to take for one answer more."""
        return self.held >= (_HELD if self._all.full else _MOST)

    async def begin(self) -> None:
        """That of a read."""
        await self._wait()
        while True:
            try:
                await self._all.making.acquire()
            except asyncio.CancelledError:
                self.end()
                raise
            if not (self._all.full and (self.held or self._making)):
                self._making += 1
                return
            # Too much was made meanwhile, and this peer has its part.
            self._all.making.release()
            self.end()
            await self._wait()

    def writing(self, size: int) -> AbstractAsyncContextManager[None]:
        """Waits until an answer of so many bytes may be written, as long as the block runs."""
        return self._all.writing if size > LARGE else nullcontext()

    def made(self) -> None:
        """The answer to what only reads counts as bytes now."""
        self._making -= 1
        self._all.making.release()

    async def _wait(self) -> None:
        if not self._waiting and self._may_read():
            self._reading += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.end()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def end(self) -> None:
        """That of a read."""
        self._reading -= 1
        self.wake()

    def _may_read(self) -> bool:
        full = self._all.full
        return self.held < (1 if full else _HELD) and self._reading < (1 if full else _READS)

    def wake(self) -> None:
        """Begins the reads that may begin now."""
        while self._waiting and self._may_read():
            turn = self._waiting.popleft()
            if not turn.done():
                self._reading += 1
                turn.set_result(None)


class Turn:
    """Of one call, which only `reads` or does more. `async with` waits for it."""

    __slots__ = ("_begun", "_making", "_turns", "reads")

    def __init__(self, turns: Turns, reads: bool) -> None:
        self._turns = turns
        self.reads = reads
        self._begun = self._making = False

    async def __aenter__(self) -> Self:
        if self.reads:
            await self._turns.begin()
            self._begun = self._making = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    @contextmanager
    def making(self, size: int) -> Iterator[None]:
        """While the block makes an answer of about so many bytes."""
        size = min(size, _LARGEST_MADE)
        self._turns.hold(size)
        try:
            yield
        finally:
            # The answer itself counts from its first byte on: between the two nothing else begins.
            self._turns.drop(size)

    def writing(self, size: int) -> AbstractAsyncContextManager[None]:
        """Waits until an answer of so many bytes of JSON may be written, as long as the block runs."""
        return self._turns.writing(size)

    @property
    def overfull(self) -> bool:
        """Whether no answer may be made. A read has waited until one may."""
        return not self.reads and self._turns.overfull

    def check(self) -> None:
        """Before anything is done that has an answer. Raises: TooManyRequests."""
        if self.overfull:
            raise too_many()

    def made(self) -> None:
        """The answer, or its begin, is made. May be said more than once."""
        if self._making:
            self._making = False
            self._turns.made()

    def end(self) -> None:
        """The answer, or its begin, is taken. May be said more than once."""
        self.made()
        if self._begun:
            self._begun = False
            self._turns.end()
        else:
            self._turns.wake()
