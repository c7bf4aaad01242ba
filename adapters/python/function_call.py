"""Calls a function of any kind. Law: it may block, fail or ignore a cancellation; it holds up only its own call."""

import asyncio
import contextvars
import inspect
import logging
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from adapters.python.reference import AgentFunction
from gateway.agent import TurnEnding
from gateway.foundation.tasks import stop
from gateway.ports.adapter import AdapterError, ErrorClass

T = TypeVar("T")
_DETAIL = 2000

_log = logging.getLogger(__name__)


class CallThread:
    """Every step of a call runs in this thread, with the call's context variables: a generator stays in one thread.

    A daemon thread, so that the process can end before the function does.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="python-agent", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    async def run(self, function: Callable[[], T]) -> T:
        """Raises: the exception of the function."""
        future: Future[tuple[Any, BaseException | None]] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result((function(), None))
            except BaseException as error:  # noqa: BLE001  # as a result: a future cannot carry every exception (StopIteration)
                future.set_result((None, error))

        self._jobs.put(job)
        value, error = await asyncio.wrap_future(future)
        if error is not None:
            raise error
        result: T = value
        return result

    def finish(self, last: Callable[[], None] | None = None) -> None:
        """Runs `last`, then ends the thread. Does not wait: the thread may be in a long step."""
        if last is not None:
            self._jobs.put(last)
        self._jobs.put(None)


@dataclass(frozen=True, slots=True)
class _End:
    """The function, or its generator, has ended. `value` is the return value of a synchronous generator."""

    error: BaseException | None = None
    value: object = None


class FunctionCall:
    """One call of the function."""

    def __init__(self, function: AgentFunction) -> None:
        self._function = function
        self._task: asyncio.Task[Any] | None = None
        self._cancelled_before = 0
        self._over = False

    def asked_to_stop(self) -> bool:
        """May be called in any thread."""
        task = self._task
        return self._over or (task is not None and task.cancelling() > self._cancelled_before)

    async def values(self, argument: object) -> AsyncGenerator[object, None]:
        """Every value that the function yields or returns. Raises: TurnEnding, and AdapterError for any other error."""
        requests, values = asyncio.Semaphore(0), asyncio.Queue[object]()
        # The task is in no task group, because a group would wait for it: a function that ignores its cancellation is
        # abandoned.
        pump = asyncio.get_running_loop().create_task(self._pump(argument, requests, values))
        try:
            while True:
                requests.release()
                value = await values.get()
                if isinstance(value, _End):
                    break
                yield value
            if value.error is not None:
                raise value.error
        finally:
            if not await stop(pump):
                _log.warning("a Python agent does not end although it was cancelled; it is left to itself")

    async def _pump(self, argument: object, requests: asyncio.Semaphore, values: asyncio.Queue[object]) -> None:
        """One step for each request: the function is never ahead of the reader of its values."""
        end = _End()
        try:
            async with aclosing(self._steps(argument)) as steps:
                await requests.acquire()
                async for value in steps:
                    values.put_nowait(value)
                    await requests.acquire()
        except Exception as error:  # noqa: BLE001  # raised again where the values are read
            end = _End(error)
        values.put_nowait(end)

    async def _steps(self, argument: object) -> AsyncGenerator[object, None]:
        thread = None if _is_async(self._function) else CallThread()
        last: Callable[[], None] | None = None
        try:
            result = await self._begin(argument, thread)
            if inspect.isgenerator(result):
                thread = thread or CallThread()
                last = partial(_close, result)
                values = self._drain(lambda: thread.run(partial(_next, result)))
            elif inspect.isasyncgen(result):
                values = self._drain_async(result)
            else:
                values = _returned(result)
            async with aclosing(values):
                async for value in values:
                    yield value
        finally:
            # A cancelled task holds the frames that it went through, and they hold this call.
            self._over, self._task = True, None
            if thread is not None:
                thread.finish(last)

    async def _begin(self, argument: object, thread: CallThread | None) -> object:
        if thread is None:
            result = self._function(argument)
        else:
            result = await self._attempt(thread.run(partial(self._function, argument)))
        return await self._attempt(result) if inspect.isawaitable(result) else result

    async def _drain(self, step: Callable[[], Awaitable[object]]) -> AsyncGenerator[object, None]:
        while not isinstance(value := await self._attempt(step()), _End):
            yield value
        if value.value is not None:
            raise AdapterError(
                ErrorClass.CONTRACT_BROKEN, "a generator function returned a value; there an answer is yielded"
            )

    async def _drain_async(self, generator: AsyncGenerator[object, Any]) -> AsyncGenerator[object, None]:
        try:
            async with aclosing(self._drain(lambda: anext(generator, _End()))) as values:
                async for value in values:
                    yield value
        finally:
            self._over = True
            try:
                await generator.aclose()
            except BaseException:  # noqa: BLE001  # no caller is left
                _log.warning("a Python agent failed while it was being closed", exc_info=True)

    async def _attempt(self, step: Awaitable[T]) -> T:
        """Awaits a step of the function. A cancelled step counts as cancelled, even if it returned or failed."""
        self._note_task(asyncio.current_task())
        try:
            result = await step
        except BaseException as error:
            if self.asked_to_stop():
                raise asyncio.CancelledError from error
            if isinstance(error, TurnEnding):
                raise
            raise AdapterError(ErrorClass.BACKEND_FAILED, _summary(error)) from error
        if self.asked_to_stop():
            raise asyncio.CancelledError
        return result

    def _note_task(self, task: asyncio.Task[Any] | None) -> None:
        # This is not done in `_attempt`: a cancelled task holds the frame of `_attempt`, and a local variable there
        # would hold the task.
        if task is not self._task:
            self._task = task
            self._cancelled_before = task.cancelling() if task is not None else 0


def _next(generator: Generator[object, Any, object]) -> object:
    try:
        return next(generator)
    except StopIteration as stop:
        return _End(value=stop.value)


def _close(generator: Generator[object, Any, object]) -> None:
    try:
        generator.close()
    except BaseException:  # noqa: BLE001  # no caller is left
        _log.warning("a Python agent failed while it was being closed", exc_info=True)


def _is_async(function: AgentFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


async def _returned(result: object) -> AsyncGenerator[object, None]:
    """A list is an answer of several parts, None an empty answer."""
    if result is None:
        return
    for value in result if isinstance(result, list | tuple) else (result,):
        yield value


def _summary(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error, limit=-5)).strip()
    return text if len(text) <= _DETAIL else f"…{text[-_DETAIL:]}"
