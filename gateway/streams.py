"""Windows on a task: the Task first, then what follows it. Law: numbers rise by one, none is given twice."""

from collections.abc import AsyncIterator, Sequence

from gateway.fanout import Frame, Subscription
from gateway.model import Message, StreamResponse, Task
from gateway.wire.v1_0 import encode_event


class TaskStream:
    """Frames that are there already, then those of a subscription that are newer than `number`."""

    def __init__(self, ready: Sequence[Frame], number: int, subscription: Subscription | None) -> None:
        self._ready = list(ready)
        self._number = number
        self._subscription = subscription

    async def __aiter__(self) -> AsyncIterator[list[Frame]]:
        yield self._ready
        if self._subscription is None:
            return
        async for batch in self._subscription:
            fresh = [frame for frame in batch if frame[0] is None or frame[0] > self._number]
            if fresh:
                yield fresh

    async def aclose(self) -> None:
        if self._subscription is not None:
            self._subscription.close()


def task_frame(task: Task, number: int | None) -> Frame:
    return number, encode_event(StreamResponse(task=task))


def message_stream(reply: Message) -> TaskStream:
    return TaskStream([(None, encode_event(StreamResponse(message=reply)))], 0, None)
