"""Runs a function of any kind. Law: it may block, fail or swallow a cancellation; it holds up nothing but its call."""

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

from adapters.python.loading import AgentFunction
from gateway.agent import TurnEnding
from gateway.foundation.tasks import stop
from gateway.ports.adapter import AdapterError, ErrorClass

T = TypeVar("T")
_DETAIL = 2000

_log = logging.getLogger(__name__)


class OwnThread:
    """The one thread of a call: a generator stays where it began, with the context variables of the call.

    A daemon, so that a function that never returns cannot hold up the end of the gateway.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="python-agent", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    async def run(self, function: Callable[[], T]) -> T:
        """Raises: what the function raises."""
        future: Future[Callable[[], T]] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(_outcome(function))

        self._jobs.put(job)
        return (await asyncio.wrap_future(future))()

    def finish(self, last: Callable[[], None] | None) -> None:
        """Does not wait: the thread may be in a step that takes long."""
        if last is not None:
            self._jobs.put(last)
        self._jobs.put(None)


def _outcome(function: Callable[[], T]) -> Callable[[], T]:
    """What it returned or raised, to be had by calling: a future cannot carry every exception (StopIteration)."""
    try:
        value = function()
    except BaseException as error:  # noqa: BLE001  # raised again in the event loop
        return partial(_raise, error)
    return lambda: value


def _raise(error: BaseException) -> Any:
    raise error


@dataclass(frozen=True, slots=True)
class _End:
    """A generator is exhausted. `value` is what a plain one returned."""

    value: object = None


@dataclass(frozen=True, slots=True)
class _Over:
    """The function has come to its end, or to this error."""

    error: BaseException | None = None


async def _advance(generator: AsyncGenerator[object, Any]) -> object:
    try:
        return await anext(generator)
    except StopAsyncIteration:
        return _End()


def _step(generator: Generator[object, Any, object]) -> object:
    try:
        return next(generator)
    except StopIteration as stop:
        return _End(stop.value)


def _close(generator: Generator[object, Any, object]) -> None:
    try:
        generator.close()
    except BaseException:  # noqa: BLE001  # nobody waits for it any more
        _log.warning("a Python agent failed while it was being closed", exc_info=True)


class Run:
    """One call of the function."""

    def __init__(self, function: AgentFunction) -> None:
        self._function = function
        self._task: asyncio.Task[Any] | None = None
        self._cancelled_before = 0
        self._over = False

    def asked_to_stop(self) -> bool:
        """May be asked from any thread."""
        task = self._task
        return self._over or (task is not None and task.cancelling() > self._cancelled_before)

    async def values(self, argument: object) -> AsyncGenerator[object, None]:
        """What the function yields or returns, one by one. Raises: TurnEnding, and AdapterError for all else."""
        asked, said = asyncio.Semaphore(0), asyncio.Queue[object]()
        # In no group, which would wait for it: a function that swallows its cancellation is left to itself.
        pump = asyncio.get_running_loop().create_task(self._pump(argument, asked, said))
        try:
            while True:
                asked.release()
                value = await said.get()
                if isinstance(value, _Over):
                    break
                yield value
            if value.error is not None:
                raise value.error
        finally:
            await _stop(pump)

    async def _pump(self, argument: object, asked: asyncio.Semaphore, said: asyncio.Queue[object]) -> None:
        """A step for each time that one is asked for: the function is never ahead of what was made of its words."""
        over = _Over()
        try:
            async with aclosing(self._values(argument)) as values:
                await asked.acquire()
                async for value in values:
                    said.put_nowait(value)
                    await asked.acquire()
        except Exception as error:  # noqa: BLE001  # raised again where the values are read
            over = _Over(error)
        said.put_nowait(over)

    async def _values(self, argument: object) -> AsyncGenerator[object, None]:
        thread = None if _is_async(self._function) else OwnThread()
        last: Callable[[], None] | None = None
        try:
            result = await self._begin(argument, thread)
            if inspect.isgenerator(result):
                thread = thread or OwnThread()
                last = partial(_close, result)
                said = self._drain(lambda: thread.run(partial(_step, result)))
            elif inspect.isasyncgen(result):
                said = self._drain_async(result)
            else:
                said = _returned(result)
            async with aclosing(said):
                async for value in said:
                    yield value
        finally:
            # A task that was cancelled holds the frames that it went through, and they hold this.
            self._over, self._task = True, None
            if thread is not None:
                thread.finish(last)

    async def _begin(self, argument: object, thread: OwnThread | None) -> object:
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
            async with aclosing(self._drain(lambda: _advance(generator))) as said:
                async for value in said:
                    yield value
        finally:
            self._over = True
            try:
                await generator.aclose()
            except BaseException:  # noqa: BLE001  # nobody waits for it any more
                _log.warning("a Python agent failed while it was being closed", exc_info=True)

    async def _attempt(self, step: Awaitable[T]) -> T:
        """Awaits a piece of the function. A cancelled one counts as cancelled, whatever it made of it."""
        self._enter(asyncio.current_task())
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

    def _enter(self, task: asyncio.Task[Any] | None) -> None:
        if task is not self._task:
            self._task = task
            self._cancelled_before = task.cancelling() if task is not None else 0


async def _stop(pump: asyncio.Task[None]) -> None:
    if not await stop(pump):
        _log.warning("a Python agent does not end although it was cancelled; it is left to itself")


def _is_async(function: AgentFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


async def _returned(result: object) -> AsyncGenerator[object, None]:
    """A list is an answer of several parts, nothing at all an empty one."""
    if result is None:
        return
    for value in result if isinstance(result, list | tuple) else (result,):
        yield value


def _summary(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error, limit=-5)).strip()
    return text if len(text) <= _DETAIL else f"…{text[-_DETAIL:]}"
