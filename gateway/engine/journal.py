"""The log of one running task. Law: an event gets its number when it happens, and is shown when it is stored.

Events that come while a group is being stored are stored together in the next one; a state change takes them along at once.
"""

import asyncio
from collections.abc import Callable

import msgspec

from gateway.engine.fanout import Channel
from gateway.ledger.errors import Conflict
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Commits
from gateway.ledger.tasks import Append, EventRow


def appended(row: EventRow | None) -> tuple[CommitPoint, ...]:
    """The point for events that are part of no other point."""
    return () if row is None else (Append(row),)


class _Commit:
    """A commit under way. A waiter that is cancelled still waits for the end of the commit; then the cancellation takes
    effect."""

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
        """Raises: the error of the commit."""
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


class Journal(msgspec.Struct, eq=False):
    """`number` is that of the latest event: an added event counts at once, a final one when it is stored."""

    _ledger: Commits
    _channel: Channel
    _task: str
    number: int
    holder: str | None = None
    """The process that has the turn: where another one has taken it over, no event is stored. A paused turn belongs to none."""
    _loop: asyncio.AbstractEventLoop = msgspec.field(default_factory=asyncio.get_running_loop)
    _pending: list[bytes] = []
    _points: list[CommitPoint] = []
    _reactions: list[Callable[[], None]] = []
    _flying: bool = False
    _failed: Exception | None = None
    _stored: int = 0

    def __post_init__(self) -> None:
        self._stored = self.number

    def add(self, payload: bytes) -> None:
        """An event that changes nothing but the record. Raises: the error of an earlier group."""
        if self._failed is not None:
            raise self._failed
        self.number += 1
        self._pending.append(payload)
        if not self._flying:
            self._schedule()

    def note(self, point: CommitPoint, stored: Callable[[], None] | None = None) -> None:
        """A commit point that has to precede later events; the next group takes it along. `stored` is called when that group
        is durable and shown."""
        self._points.append(point)
        if stored is not None:
            self._reactions.append(stored)
        if not self._flying:
            self._schedule()

    def appended(self, row: EventRow | None) -> tuple[CommitPoint, ...]:
        """As the function of this name, for a unit in which nothing else finds out that another process has the turn."""
        return () if row is None else (Append(row, self.holder),)

    def _schedule(self) -> None:
        self._flying = True
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        payloads, points, reactions = self._take()
        row = self._row(payloads, self.number)
        if row is not None:
            points.append(Append(row, self.holder))
        if not points:
            self._flying = False
            return
        self._ledger.submit(tuple(points), lambda error: self._flushed(error, row, payloads, reactions))

    def _flushed(
        self, error: Exception | None, row: EventRow | None, payloads: list[bytes], reactions: list[Callable[[], None]]
    ) -> None:
        if error is not None:
            self._failed = error
        else:
            self._show(row, payloads, reactions)
        self._flying = False
        if (self._pending or self._points) and self._failed is None:
            self._flying = True
            self._flush()

    def _take(self) -> tuple[list[bytes], list[CommitPoint], list[Callable[[], None]]]:
        taken = self._pending, self._points, self._reactions
        self._pending, self._points, self._reactions = [], [], []
        return taken

    def _row(self, payloads: list[bytes], last: int) -> EventRow | None:
        if not payloads:
            return None
        return EventRow(self._task, last - len(payloads) + 1, last, b"\n".join(payloads))

    def _show(self, row: EventRow | None, payloads: list[bytes], reactions: list[Callable[[], None]]) -> None:
        if row is not None:
            self._stored = row.last
            self._channel.publish(row.first, payloads)
        for react in reactions:
            react()

    async def commit(
        self,
        points: Callable[[EventRow | None], tuple[CommitPoint, ...]],
        final: bytes | None = None,
        stored: Callable[[], None] | None = None,
    ) -> None:
        """One unit: the events that wait, `final` as the latest event, and the points made for their row.

        `stored` is called as soon as the unit is durable, also when the caller was cancelled; its changes are seen together
        with the event. Raises: Conflict, LedgerUnavailable; then nothing was stored or shown.
        """
        if self._failed is not None:
            raise self._failed
        waiting, noted, reactions = self._take()
        payloads = waiting if final is None else [*waiting, final]
        last = self.number + (final is not None)
        row = self._row(payloads, last)
        commit = _Commit(self._loop)

        def done(error: Exception | None) -> None:
            if error is not None:
                # A conflict of a unit without waiting events has lost nothing: the unit may be tried again.
                if self._failed is None and (waiting or noted or not isinstance(error, Conflict)):
                    self._failed = error
                commit.end(self._failed or error)
                return
            # The waiter continues in the next step of the event loop, before anything that `stored` starts.
            commit.end()
            if final is not None:
                self.number = last
            self._show(row, payloads, reactions)
            if stored is not None:
                stored()

        try:
            self._ledger.submit((*noted, *points(row)), done)
        except BaseException:
            self._pending, self._points = waiting + self._pending, noted + self._points
            self._reactions = reactions + self._reactions
            raise
        await commit.wait()

    async def durable(self) -> None:
        """Returns when everything that happened so far is stored and shown. Raises: Conflict, LedgerUnavailable."""
        if self._stored < self.number:
            await self.commit(self.appended)
        if self._failed is not None:
            raise self._failed
