"""Windows on a task: the Task first, then what follows it. Law: numbers rise by one, none is given twice."""

from collections.abc import Sequence

from gateway.fanout import Frame, Subscription
from gateway.model import Message, StreamResponse, Task
from gateway.wire.v1_0 import encode


class TaskStream:
    """Frames that are there already, then those of a subscription that are newer than `number`."""

    def __init__(self, ready: Sequence[Frame], number: int, subscription: Subscription | None) -> None:
        self._ready: list[Frame] | None = list(ready)
        self._number = number
        self._subscription = subscription

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
    return number, encode(StreamResponse(task=task))


def message_stream(reply: Message) -> TaskStream:
    return TaskStream([(None, encode(StreamResponse(message=reply)))], 0, None)
