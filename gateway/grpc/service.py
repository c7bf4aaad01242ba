"""The calls of A2AService. Law: a caller is admitted before its message is read; an operation that has begun goes on when
its caller leaves, as over HTTP.

Source: A2A 1.0, section 10.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, cast

from gateway.a2a.model import SendMessageResponse, Task, TaskPushNotificationConfig
from gateway.a2a.weight import weight
from gateway.a2a.wire import dialects, v1_0, v1_0_proto
from gateway.a2a.wire.dialect import CHANGES, Dialect, Method
from gateway.foundation.clock import Clock
from gateway.foundation.off_loop import off_loop
from gateway.grpc.context import CallerGone, Context, receive
from gateway.grpc.streaming import StreamedCall
from gateway.grpc.turns import not_given, too_many
from gateway.http.arrival import Arrival
from gateway.http.pipeline import Outcome, Pipeline
from gateway.http.request_log import milliseconds
from gateway.http.traced import TracedRequest
from gateway.ports.observer import Observer, RequestLine

_DIALECTS = {v1_0.VERSION: v1_0_proto.DIALECT}

_READS = frozenset({"GetTask", "ListTasks", "SubscribeToTask"})
"""The methods that read tasks, and wait for nobody."""

_REPEATED = frozenset({"SendMessage", "SendStreamingMessage", "CreateTaskPushNotificationConfig"})
"""The methods that would do their work twice when they are called again."""

_FIELDS = 32
"""Times that a message, read field by field, takes longer than so many bytes of JSON: a field may have two bytes."""

Pipelines = Callable[[], AbstractContextManager[Pipeline]]
"""The pipeline of the latest configuration, which stays open while the block runs."""


class A2AService:
    def __init__(self, pipelines: Pipelines, clock: Clock, observer: Observer) -> None:
        self._pipelines = pipelines
        self._clock = clock
        self._observer = observer
        self._running: set[asyncio.Task[Any]] = set()

    def end(self) -> None:
        """Ends the operations that still run."""
        for task in self._running:
            task.cancel()

    async def call(self, name: str, context: Context) -> None:
        """One call of the method of this name. Raises: CallerGone."""
        line = RequestLine(method="POST", path=context.path, peer=context.peer or None)
        began = self._clock.monotonic()
        traced: TracedRequest | None = None
        if self._observer.traces:
            traced = TracedRequest(self._observer, self._clock.now(), self._clock.row_id())
        try:
            with self._pipelines() as pipeline:
                await self._answer(
                    pipeline, name, Arrival(context.metadata, context.peer, line, traced=traced), context
                )
        finally:
            line.ms = milliseconds(self._clock.monotonic() - began)
            if traced is not None:
                traced.end(line, self._clock.now())
            self._observer.request_ended(line)

    async def _answer(self, pipeline: Pipeline, name: str, arrival: Arrival, context: Context) -> None:
        line = arrival.line
        try:
            await self._perform(pipeline, name, arrival, context)
            line.status = 200
        except CallerGone:
            raise
        except Exception as error:  # noqa: BLE001  # the caller gets a status for any error, and none of its text
            failure = pipeline.refusal(error, line)
            line.status = failure.http
            context.refuse(failure)

    async def _perform(self, pipeline: Pipeline, name: str, arrival: Arrival, context: Context) -> None:
        admitted = await pipeline.admit(arrival, None)
        payload = await receive(context)
        dialect = dialects.negotiate(admitted.parameters.version(), _DIALECTS)

        found = await off_loop(len(payload) * _FIELDS, _read, dialect, name, payload, pipeline.depth)
        del payload
        context.keep(0)

        async with context.turn(reads=name in _READS) as turn:
            if name in _REPEATED:
                turn.check()
            outcome = await self._outcome(context, pipeline.perform(admitted, dialect, lambda _: found, size=0))
            active = ((dialect.extensions.decode(), ", ".join(outcome.extensions)),) if outcome.extensions else ()
            if outcome.stream is not None:
                call = StreamedCall(context, outcome.stream, pipeline.streams, v1_0_proto.event, turn)
                await call.run(active, admitted.parameters.last_event_id(), outcome.on_revocation)
                return
            result, size = outcome.result, weight(outcome.result)
            if name in CHANGES:
                context.carried_out = partial(not_given, _task_of(result))
            if turn.overfull:
                raise too_many() if context.carried_out is None else context.carried_out()
            with turn.making(size):
                async with turn.writing(size):
                    message = b"" if result is None else await off_loop(size, dialect.encode, result)
            # As large as the message, which may be waited for.
            del outcome, result
            context.send_metadata(active)
            turn.made()
            await context.write((message,), pipeline.streams.send_timeout)

    async def _outcome(self, context: Context, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """What the operation returns or raises. When the caller leaves, it goes on, and its stream is closed.

        Raises: CallerGone.
        """
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._running.add(task)
        context.busy = True
        try:
            outcome = await work
        finally:
            context.busy = False
            self._running.discard(task)
        if context.ended:
            if outcome.stream is not None:
                await outcome.stream.aclose()
            raise CallerGone
        return outcome


def _read(dialect: Dialect, name: str, payload: bytes, depth: int) -> tuple[Method, Any]:
    """The method of this name, and its request. Raises: A2AError."""
    method = dialect.method(name)
    return method, dialect.decode(method, v1_0_proto.params(method, payload, depth))


def _task_of(result: Any) -> str | None:
    """The id of the task that a result is about."""
    match result:
        case Task(id=task) | SendMessageResponse(task=Task(id=task)) | TaskPushNotificationConfig(task_id=task):
            return task or None
        case _:
            return None
