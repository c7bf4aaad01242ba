"""The calls of one function, on the event loop that runs it.

Law: every call comes to exactly one end, whatever its function raises, wherever it raises it: in the call, in a task or a
callback that the call has begun, in a thread.
"""

import asyncio
import contextvars
import threading
import traceback
from collections.abc import Mapping
from typing import Protocol

import structlog
from structlog.contextvars import bind_contextvars

from adapters.python.calls import WINDOW, CallFailed, Failure, GatewayPort, weight
from adapters.python.forks import end_copy
from gateway.foundation import trace
from gateway.foundation.trace import TraceContext
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.tools import SourceTool

log = structlog.get_logger("adapters.python.worker")

_DETAIL = 2000
_SHARED = (
    "(each agent has an event loop of its own: a client, lock or queue that two of them share belongs to one only)"
)


class Run:
    """One call on its loop. `stopped`: it was cancelled. `closing`: its generator is being closed. `over`: nothing that it
    does counts any more."""

    def __init__(self, number: int, service: "Service", gateway: GatewayPort) -> None:
        self._number = number
        self._service = service
        self._gateway = gateway
        self._given = self._read = 0
        self._room: asyncio.Event | threading.Event | None = None
        self.task: asyncio.Task[None] | None = None
        self.stopped = self.closing = self.over = False

    def asked_to_stop(self) -> bool:
        """May be called in any thread."""
        return self.stopped or self.closing or self.over

    def emit(self, value: object) -> None:
        """May be called in any thread, by one at a time."""
        end_copy()
        if not self.stopped and not self.over:
            self._given += weight(value)
            self._gateway.value(self._number, value)

    @property
    def _full(self) -> bool:
        return self._given - self._read >= WINDOW and not self.stopped and not self.over

    async def room(self) -> None:
        """Returns when the reader has caught up."""
        while self._full:
            self._room = room = asyncio.Event()
            if self._full:
                await room.wait()

    def room_in_thread(self) -> None:
        """As `room`, for the thread of a function."""
        while self._full:
            self._room = room = threading.Event()
            if self._full:
                room.wait()

    def give(self, weight_read: int) -> None:
        self._read += weight_read
        self._wake()

    def stop(self) -> None:
        self.stopped = True
        self._wake()
        if self.task is not None:
            self.task.cancel()

    def end(self, failure: Failure | None) -> None:
        """Only the first end counts."""
        if not self.over:
            self.over = True
            self._gateway.end(self._number, failure)
            self._wake()

    def fail(self, error: BaseException) -> None:
        end_copy(error)
        self.end(self._service.failure(error))

    def escape(self, error: BaseException) -> None:
        """A task or a callback of this call wanted to end the process: the call ends instead."""
        self.fail(error)
        if self.task is not None:
            self.task.cancel()

    def _wake(self) -> None:
        if self._room is not None:
            self._room.set()


_current: contextvars.ContextVar[Run] = contextvars.ContextVar("adapters.python.worker")


class Service(Protocol):
    """Runs one call of a function. What it emits is the call's result. `tool` describes a function that is a tool."""

    @property
    def tool(self) -> SourceTool | None: ...

    async def run(self, given: bytes, run: Run) -> None:
        """Raises: CallFailed, or whatever the function raises."""

    def failure(self, error: BaseException) -> Failure:
        """What the operator is told of an exception of the function."""


class Worker:
    """All methods are called on the loop. `under_way` are all calls on that loop, also those of other workers. `owner` names
    the function in the lines of the log that it causes."""

    def __init__(self, service: Service, gateway: GatewayPort, under_way: set[Run], owner: Mapping[str, str]) -> None:
        self._owner = owner
        self._service = service
        self._gateway = gateway
        self._under_way = under_way
        self._runs: dict[int, Run] = {}

    def start(self, number: int, given: bytes, context: contextvars.Context | None = None) -> None:
        run = self._runs[number] = Run(number, self._service, self._gateway)
        self._under_way.add(run)
        # The task is in no task group, because a group would wait for it: a function that ignores its cancellation is
        # left to itself.
        # Not by `create_task`, because the function may have given the loop a factory of tasks that fails.
        run.task = asyncio.Task(self._run(run, given), loop=asyncio.get_running_loop(), context=context)
        run.task.add_done_callback(lambda _: self._forget(number, run))

    def give(self, number: int, weight_read: int) -> None:
        run = self._runs.get(number)
        if run is not None:
            run.give(weight_read)

    def stop(self, number: int) -> None:
        run = self._runs.get(number)
        if run is not None:
            run.stop()

    async def _run(self, run: Run, given: bytes) -> None:
        _current.set(run)
        bind_contextvars(**self._owner)
        place = trace.current()
        if place is not None:
            _attach(place)
        try:
            await self._service.run(given, run)
        except CallFailed as error:
            run.end(error.failure)
            drop_tracebacks(error)
        except BaseException as error:  # noqa: BLE001  # nothing of a function ends the loop; the gateway tells the operator
            run.fail(error)
            drop_tracebacks(error)
        else:
            run.end(None)

    def _forget(self, number: int, run: Run) -> None:
        # A task that is cancelled before its first step never begins.
        run.end(None)
        run.task = None
        del self._runs[number]
        self._under_way.discard(run)


def _attach(place: TraceContext) -> None:
    """What the function traces itself is a part of its call. Nothing is traced where OpenTelemetry is not installed."""
    from gateway.telemetry.otel.current import attach

    attach(place)


def escaped(
    owner: Mapping[str, str], under_way: set[Run], error: BaseException, context: contextvars.Context | None
) -> None:
    """An exception has stopped the loop: SystemExit or KeyboardInterrupt, which asyncio passes on. The call that raised it
    fails. Where nothing names that call, because a thread has made the callback, it is the only one, if there is one."""
    log.error("python.exit-refused", **owner, detail=summary(error))
    found = None if context is None else context.get(_current)
    if found is None and len(under_way) == 1:
        (found,) = under_way
    if found is not None:
        found.escape(error)


def summary(error: BaseException) -> str:
    """For the operator: the end of the traceback."""
    text = "".join(traceback.format_exception(error, limit=-5)).strip()
    if isinstance(error, RuntimeError) and "different" in text and "loop" in text:
        text = f"{text}\n{_SHARED}"
    return text if len(text) <= _DETAIL else f"…{text[-_DETAIL:]}"
