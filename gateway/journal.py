"""The log of one running task. Law: a number is given when an event happens, and nothing is shown before it is stored.

Events that come while a group is being stored wait and go together; a state change takes them along at once. Who brings
them waits as well: what a backend says faster than it can be stored stays with the backend, and is read at once then.
"""

import asyncio
from collections.abc import Callable

from gateway.commits.failures import Conflict
from gateway.commits.points import CommitPoint
from gateway.commits.tasks import Append, EventRow
from gateway.fanout import Channel
from gateway.ledger_port import Ledger


def appended(row: EventRow | None) -> tuple[CommitPoint, ...]:
    """The events of a unit that nothing else takes along."""
    return () if row is None else (Append(row),)


class _Commit:
    """One that is under way. Who waits for it waits to its end even when cancelled meanwhile; then the cancellation goes on."""

    __slots__ = ("_error", "_loop", "_over", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] = loop.create_future()
        self._over = False
        self._error: Exception | None = None

    def end(self, error: Exception | None = None) -> None:
        self._over, self._error = True, error
        if not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Raises: what it failed with."""
        cancelled: asyncio.CancelledError | None = None
        while not self._over:
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                cancelled, self._waiter = error, self._loop.create_future()
        if self._error is not None:
            raise self._error
        if cancelled is not None:
            raise cancelled


class Journal:
    """`number` is that of the latest event that happened: one that is added has, a final one has when it is stored."""

    __slots__ = (
        "_busy",
        "_channel",
        "_failed",
        "_ledger",
        "_loop",
        "_pending",
        "_points",
        "_stored",
        "_storing",
        "_task",
        "_waiting",
        "number",
    )

    def __init__(self, ledger: Ledger, channel: Channel, task: str, number: int) -> None:
        self._ledger = ledger
        self._channel = channel
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._pending: list[bytes] = []
        self._points: list[CommitPoint] = []
        self._busy = False
        """A group is being stored, or will be in the next step."""
        self._storing = False
        """It has been handed over."""
        self._waiting: asyncio.Future[None] | None = None
        self._failed: Exception | None = None
        self._stored = number
        self.number = number

    def add(self, payload: bytes) -> None:
        """An event that changes nothing but the record. Raises: what an earlier group failed with."""
        if self._failed is not None:
            raise self._failed
        self.number += 1
        self._pending.append(payload)
        if not self._busy:
            self._schedule()

    def note(self, point: CommitPoint) -> None:
        """A commit point that has to precede the events after it; it goes with the next group."""
        self._points.append(point)
        if not self._busy:
            self._schedule()

    @property
    def behind(self) -> bool:
        """A group is being stored, and more waits for it."""
        return self._storing and bool(self._pending)

    async def caught_up(self) -> None:
        """Returns when the group that is being stored is stored or lost. For one who waits at a time."""
        if self._storing:
            self._waiting = self._loop.create_future()
            await self._waiting

    def _schedule(self) -> None:
        self._busy = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        payloads, points = self._take()
        row = self._row(payloads, self.number)
        if row is not None:
            points.append(Append(row))
        if not points:
            self._busy = False
            return
        self._storing = True
        try:
            self._ledger.submit(tuple(points), lambda error: self._flushed(error, row, payloads))
        except Exception as error:  # noqa: BLE001 - as one that was not stored: who goes on with the task is told
            self._flushed(error, row, payloads)

    def _flushed(self, error: Exception | None, row: EventRow | None, payloads: list[bytes]) -> None:
        if error is not None:
            self._failed = error
        self._busy = self._storing = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        # Behind who has waited, who adds what has come.
        if (self._pending or self._points) and self._failed is None:
            self._schedule()
        if error is None:
            self._show(row, payloads)

    def _take(self) -> tuple[list[bytes], list[CommitPoint]]:
        payloads, points = self._pending, self._points
        self._pending, self._points = [], []
        return payloads, points

    def _row(self, payloads: list[bytes], last: int) -> EventRow | None:
        if not payloads:
            return None
        return EventRow(self._task, last - len(payloads) + 1, last, b"\n".join(payloads))

    def _show(self, row: EventRow | None, payloads: list[bytes]) -> None:
        if row is not None:
            self._stored = row.last
            self._channel.publish(row.first, payloads)

    async def commit(
        self,
        points: Callable[[EventRow | None], tuple[CommitPoint, ...]],
        final: bytes | None = None,
        stored: Callable[[], None] | None = None,
    ) -> None:
        """One unit: what waits, `final` as the latest event, and the points made for their row.

        `stored` is called as soon as it is durable, also when the caller has been cancelled meanwhile; what it changes
        is seen together with the event. Raises: Conflict, LedgerUnavailable; then nothing was stored or shown.
        """
        if self._failed is not None:
            raise self._failed
        waiting, noted = self._take()
        lost = bool(waiting or noted)
        payloads = waiting if final is None else [*waiting, final]
        last = self.number + (final is not None)
        row = self._row(payloads, last)
        commit = _Commit(self._loop)

        def done(error: Exception | None) -> None:
            if error is not None:
                # A lost compare-and-swap alone has changed nothing: it may be tried again.
                if self._failed is None and (lost or not isinstance(error, Conflict)):
                    self._failed = error
                commit.end(self._failed or error)
                return
            # Who waits goes on in the next step, before all that `stored` sets going.
            commit.end()
            if final is not None:
                self.number = last
            self._show(row, payloads)
            if stored is not None:
                stored()

        try:
            self._ledger.submit((*noted, *points(row)), done)
        except BaseException:
            self._pending, self._points = waiting + self._pending, noted + self._points
            raise
        await commit.wait()

    async def durable(self) -> None:
        """Returns when everything that happened so far is stored and shown. Raises: Conflict, LedgerUnavailable."""
        if self._stored < self.number:
            await self.commit(appended)
        if self._failed is not None:
            raise self._failed
