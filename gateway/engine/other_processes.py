"""Tasks that run in other processes on the same database: their streams here, and their cancellation.

Law: a stream shows the log as the other process commits it, and the database is asked only while there are streams; a
cancellation is a mark in a row, which survives every process, and the row later shows its result.

The log is read when a change is heard of, and at once when the task goes on in this process. It is read in pages, each when the
reader has taken the one before.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import InitVar, dataclass, field

import structlog

from gateway.a2a.errors import Busy, TaskNotFound
from gateway.a2a.model import INTERRUPTED, TERMINAL, TaskState, TaskStatusUpdateEvent
from gateway.engine.changes import Changes, Heard
from gateway.engine.fanout import Subscription
from gateway.foundation.shutdown import Drain, DrainOver
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.events import Frame, logged
from gateway.ledger.leases import RequestCancel
from gateway.ledger.port import Changed, EventReads, Ledger
from gateway.ledger.tasks import OpenTurn

log = structlog.get_logger("gateway.engine.other_processes")

_LOOK = 1.0
"""Seconds between two looks without a change: one that was lost delays nobody for longer, and all streams share a read."""

_OVER = frozenset(TERMINAL)
_WITH_TURN = frozenset(TERMINAL | INTERRUPTED)


@dataclass(slots=True, eq=False)
class LogTail:
    """Wakes streams when the log of their task has grown. `run` belongs into a task group."""

    _ledger: EventReads
    _changes: Changes
    _heard: Heard = field(default_factory=Heard)
    _grown: set[str] = field(default_factory=set)
    streams: set["LogTailStream"] = field(default_factory=set)
    """The streams of tasks that may run in other processes."""

    async def run(self) -> None:
        """Never returns."""
        time, all_at = asyncio.get_running_loop().time, 0.0
        with self._changes.told(self._hear):
            while True:
                await self._heard.within(_LOOK if self.streams else None)
                (grown, self._grown), everything = (self._grown, set()), time() >= all_at
                try:
                    await self._look([stream for stream in self.streams if everything or stream.task in grown])
                except LedgerUnavailable as error:
                    log.warning("watch.skipped", error=str(error))
                    all_at = 0.0
                else:
                    all_at = time() + _LOOK if everything else all_at

    def add(self, stream: "LogTailStream") -> None:
        self.streams.add(stream)
        self._changes.want(self, True)
        # The task may have gone on since its rows were read.
        self._hear(frozenset({stream.task}))

    def remove(self, stream: "LogTailStream") -> None:
        self.streams.discard(stream)
        if not self.streams:
            self._changes.want(self, False)

    def _hear(self, changed: Changed) -> None:
        grown = {stream.task for stream in self.streams if changed is None or stream.task in changed}
        if grown:
            self._grown |= grown
            self._heard.set()

    async def _look(self, streams: list["LogTailStream"]) -> None:
        if streams:
            latest = await self._ledger.latest_events(tuple({stream.task for stream in streams}))
            for stream in streams:
                stream.look(latest.get(stream.task))


@dataclass(slots=True, eq=False)
class LogTailStream:
    """A stream of the `ready` frames, then of the log after `number`, to the end of the task or of its turn.

    `ready` begins with the Task, if it is not empty; an event in it may be the last event. With `with_turn`, the stream
    also ends when the task waits for its caller, with an event from the number `may_end_at` on: the earlier ones are of turns
    that had ended before. `ended` says that no event follows: none behind the log, as long as the subscription is behind.

    Iterating raises: LedgerUnavailable, CorruptRecord where the log cannot be read, the failure of the subscription where the
    log has no end, and as `_page`.
    """

    task: str
    ready: list[Frame]
    number: int
    _subscription: Subscription
    _ledger: EventReads
    _log_tail: LogTail
    with_turn: InitVar[bool] = False
    ended: bool = False
    may_end_at: int = 0
    _last: frozenset[TaskState] = field(init=False)
    _ends_with_log: bool = field(init=False, default=False)
    _at_end: bool = field(init=False, default=False)
    """The page that was read last was the rest of the log."""
    _over: bool = field(init=False, default=False)
    """The subscription has ended, and the log was read behind it."""

    def __post_init__(self, with_turn: bool) -> None:
        self._last = _WITH_TURN if with_turn else _OVER
        if self._subscription.behind:
            self._ends_with_log, self.ended = self.ended, False
        else:
            self.ended = self.ended or (len(self.ready) > 1 and _state(self.ready[-1][1]) in self._last)
        if not self.ended:
            self._log_tail.add(self)

    def look(self, latest: int | None) -> None:
        """`latest` is the number of the task's last event, None where the task is gone."""
        if latest is None:
            self._subscription.end()
        elif latest > self.number:
            self._subscription.nudge()

    def __aiter__(self) -> "LogTailStream":
        return self

    async def __anext__(self) -> list[Frame]:
        if self.ready:
            ready, self.ready = self.ready, []
            return ready
        frames = await self._next()
        if not frames:
            self._log_tail.remove(self)
            if self._subscription.failure is not None and not self.ended:
                raise self._subscription.failure
            raise StopAsyncIteration
        return frames

    async def _next(self) -> list[Frame]:
        """The next events; none at the end."""
        subscription, frames = self._subscription, list[Frame]()
        while not (frames or self.ended or self._over):
            if subscription.behind and not self._at_end:
                frames = await self._page()
                continue
            # Not before the reader has taken the end of the log: until then, nothing is kept for it.
            subscription.catch_up()
            batch = await self._batch()
            if batch is None:
                # The task may have ended in another process, or here with a last event that another process stored.
                frames = await self._page()
                self._over = not subscription.behind
            else:
                frames = await self._newer(batch)
        return frames

    async def _batch(self) -> list[Frame] | None:
        """The next batch of the subscription; None at its end, also where it has failed. Raises: Busy where the reader is
        dropped."""
        try:
            return await anext(self._subscription)
        except StopAsyncIteration:
            return None
        except Exception as error:
            if error is self._subscription.failure:
                return None
            raise

    async def _newer(self, batch: list[Frame]) -> list[Frame]:
        """The new events, up to the end: of the batch itself where the task runs here and no event is missing before it, else
        of the log."""
        frames = [frame for frame in batch if frame[0] is not None and frame[0] > self.number]
        if not frames or frames[0][0] != self.number + 1:
            return await self._page()
        return self._to_end(frames)

    async def _page(self) -> list[Frame]:
        """The next page of the log. Raises: TaskNotFound where the task was deleted before its end was read, Busy where the
        log was."""
        most = self._subscription.limits.bytes
        frames: list[Frame] = list(await self._ledger.events(self.task, self.number, most))
        if self._subscription.behind and await self._is_deleted(frames):
            raise Busy("The rest of this stream was deleted; read the task.", retry_after=1)
        self._at_end = sum(len(payload) for _, payload in frames) < most
        if not self._at_end:
            self._subscription.fall_behind()
        frames = self._to_end(frames)
        self.ended = self.ended or (self._at_end and self._ends_with_log)
        return frames

    async def _is_deleted(self, following: list[Frame]) -> bool:
        """Whether the log has gone, where these events follow in it."""
        if following:
            return following[0][0] != self.number + 1
        latest = (await self._ledger.latest_events((self.task,))).get(self.task)
        if latest is None:
            raise TaskNotFound("Task not found: it was deleted meanwhile", metadata={"taskId": self.task})
        return latest < self.number

    def _to_end(self, frames: list[Frame]) -> list[Frame]:
        """The frames, up to the one that ends the stream."""
        for index, (number, payload) in enumerate(frames):
            self.number = number or self.number
            if self.number >= self.may_end_at and _state(payload) in self._last:
                self.ended = True
                return frames[: index + 1]
        return frames

    async def aclose(self) -> None:
        self._log_tail.remove(self)
        self._subscription.close()


def _state(payload: bytes) -> TaskState | None:
    update = logged(payload)
    return update.status.state if isinstance(update, TaskStatusUpdateEvent) else None


async def cancel_in_processes(
    ledger: Ledger, changes: Changes, context: str, chosen: Callable[[OpenTurn], bool], patience: float, drain: Drain
) -> None:
    """Requests the end of the chosen turns of a context (its row) in whichever processes they run; returns when they have
    ended, or after `patience`, the seconds within which a live process reacts and a dead process is recognised.

    Raises: DrainOver.
    """
    turns = {turn.turn: turn.task for turn in await ledger.open_turns(context) if chosen(turn)}
    if not turns:
        return
    await ledger.commit(RequestCancel(tuple(sorted(turns))))
    with suppress(TimeoutError), changes.heard(turns.values(), wanted=True) as heard:
        async with asyncio.timeout(patience):
            with drain.over.on_set(heard.set):
                while not turns.keys().isdisjoint(
                    turn.turn for turn in await ledger.open_turns(context) if chosen(turn)
                ):
                    await heard.within(_LOOK)
                    if drain.over.is_set():
                        raise DrainOver
