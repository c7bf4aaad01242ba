"""Ordered delivery of one task's events to many streams: a snapshot of the Task first, then its later events.

Law: every stream sees the same numbers in the same order, each once; a stream that does not read is dropped, never waited for,
and a stream that ends before its turn is told why.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from gateway.a2a.errors import Busy
from gateway.a2a.model import Message, StreamResponse, Task
from gateway.a2a.weight import weight
from gateway.a2a.wire.dialect import line
from gateway.foundation.off_loop import off_loop
from gateway.ledger.events import Frame


class Subscription(msgspec.Struct, eq=False):
    """A bounded buffer on a channel. Iterating gives batches, and ends with the channel. A reader that is dropped gets Busy, so
    that its caller knows that there is more; the reader of a channel that has failed gets its failure behind the last batch."""

    _channel: "Channel"
    limits: "StreamLimits"
    _frames: list[Frame] = []
    _bytes: int = 0
    _wake: asyncio.Future[None] | None = None
    _nudged: bool = False
    ended: bool = False
    dropped: bool = False
    failure: Exception | None = None
    """Why the channel has ended before its task or turn."""
    behind: bool = False
    """The reader reads the log: what is pushed meanwhile is not kept."""

    def push(self, frames: Sequence[Frame], size: int) -> None:
        if self.ended:
            return
        if self.behind:
            self.nudge()
            return
        # What counts is what waits already: one group of events may be larger than all that a reader may leave unread. And a
        # reader that waits for events is not slow, but has had no step of the event loop for what came in this one.
        reads = self._wake is not None
        if not reads and (len(self._frames) >= self.limits.events or self._bytes >= self.limits.bytes):
            self.dropped = True
            self.end()
            self._channel.unsubscribe(self)
            return
        self._frames.extend(frames)
        self._bytes += size
        self._awake()

    def fall_behind(self) -> None:
        self.behind = True
        self._frames, self._bytes = [], 0

    def catch_up(self) -> None:
        """The reader has read the log to its end. If more has come since it fell behind, it gets an empty batch."""
        self.behind = False

    def nudge(self) -> None:
        """The reader gets a batch, an empty one if there are no events."""
        self._nudged = True
        self._awake()

    def end(self, failure: Exception | None = None) -> None:
        if not self.ended:
            self.ended, self.failure = True, failure
        self._awake()

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> list[Frame]:
        while True:
            if self._frames and not self.dropped:
                batch, self._frames, self._bytes = self._frames, [], 0
                return batch
            if self.dropped:
                raise Busy(
                    "This stream has fallen behind; resume it after the last event that has arrived.", retry_after=1
                )
            if self.failure is not None:
                raise self.failure
            if self.ended:
                raise StopAsyncIteration
            if self._nudged:
                self._nudged = False
                return []
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None

    def close(self) -> None:
        self.end()
        self._channel.unsubscribe(self)


class StreamLimits(msgspec.Struct, frozen=True):
    """The `events` and `bytes` that one stream may leave unread, and the `streams` that may be open in this process."""

    events: int = 10_000
    bytes: int = 1024 * 1024
    streams: int = 2000


class Channel(msgspec.Struct, eq=False):
    """The streams of one task."""

    _fanout: "Fanout"
    _limits: StreamLimits
    _task: str
    _subscriptions: set[Subscription] = set()
    closed: bool = False

    def subscribe(self) -> Subscription:
        subscription = Subscription(self, self._limits)
        self._subscriptions.add(subscription)
        self._fanout.streams += 1
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._fanout.streams -= 1
        if not self._subscriptions:
            self._fanout.forget(self._task)

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        if not self._subscriptions:
            return
        frames = list(enumerate(payloads, first))
        size = sum(map(len, payloads))
        for subscription in tuple(self._subscriptions):
            subscription.push(frames, size)

    def close(self, failure: Exception | None = None) -> None:
        self.closed = True
        for subscription in tuple(self._subscriptions):
            subscription.end(failure)
            self.unsubscribe(subscription)
        self._fanout.forget(self._task)

    @property
    def watched(self) -> bool:
        return bool(self._subscriptions)


class Fanout:
    """The channels of the tasks that run in this process or have streams in it."""

    def __init__(self, limits: StreamLimits) -> None:
        self.limits = limits
        """The limits of channels that are opened from this point on."""
        self.streams = 0
        self._channels: dict[str, Channel] = {}
        self._holds: Counter[str] = Counter()

    def hold(self, task: str) -> Channel:
        """The task's channel, kept until every `hold` has its `release`."""
        self._holds[task] += 1
        return self.open(task)

    def open(self, task: str) -> Channel:
        """The task's channel, kept as long as it is held or has streams."""
        channel = self._channels.get(task)
        if channel is None or channel.closed:
            channel = self._channels[task] = Channel(self, self.limits, task)
        return channel

    def check_room(self) -> None:
        """Raises: Busy when the limit of open streams is reached."""
        if self.streams >= self.limits.streams:
            raise Busy("Too many streams are open; try again later.", retry_after=5)

    def close(self, task: str, failure: Exception | None = None) -> None:
        """The task has ended: its streams end after its last event. With a failure, its turn has left this process instead:
        the streams end with the failure, after the last event that was stored here."""
        channel = self._channels.get(task)
        if channel is not None:
            channel.close(failure)

    def release(self, task: str) -> None:
        self._holds[task] -= 1
        if self._holds[task] <= 0:
            del self._holds[task]
        self.forget(task)

    def forget(self, task: str) -> None:
        """Drops the channel of a task that is not held and has no streams."""
        channel = self._channels.get(task)
        if channel is not None and task not in self._holds and not channel.watched:
            del self._channels[task]


class TaskStream(msgspec.Struct):
    """A stream of the `ready` frames, then of the frames of a subscription that are newer than `number`."""

    _ready: list[Frame] | None
    _number: int
    _subscription: Subscription | None

    may_end_at: ClassVar[int] = 0

    def __aiter__(self) -> "TaskStream":
        return self

    async def __anext__(self) -> list[Frame]:
        ready, self._ready = self._ready, None
        if ready is not None:
            return ready
        if self._subscription is None:
            raise StopAsyncIteration
        while True:
            batch = await anext(self._subscription)
            if fresh := [frame for frame in batch if frame[0] is None or frame[0] > self._number]:
                return fresh

    async def aclose(self) -> None:
        if self._subscription is not None:
            self._subscription.close()


def task_frame(task: Task, number: int | None) -> Frame:
    return number, line(StreamResponse(task=task))


async def large_task_frame(task: Task, number: int | None) -> Frame:
    """The same for a task that may be large."""
    return await off_loop(weight(task), task_frame, task, number)


def message_stream(reply: Message) -> TaskStream:
    return TaskStream([(None, line(StreamResponse(message=reply)))], 0, None)
