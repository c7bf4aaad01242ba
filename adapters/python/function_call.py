"""Calls a function of any kind, and emits what it yields or returns. Law: it may block, fail or ignore a cancellation; it holds
up only its own call."""

import asyncio
import contextvars
import inspect
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import structlog

from adapters.python.forks import outcome
from adapters.python.worker import Run, summary

log = structlog.get_logger("adapters.python.function_call")

T = TypeVar("T")

Emit = Callable[[object], None]
"""Takes a value of the function."""


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
        # What it has printed without an end of a line.
        with suppress(Exception):
            sys.stdout.flush()

    async def run(self, function: Callable[[], T]) -> T:
        """Raises: the exception of the function."""
        future: Future[tuple[Any, BaseException | None]] = Future()
        self._jobs.put(partial(_do, future, function))
        value, error = await asyncio.wrap_future(future)
        try:
            if error is not None:
                raise error
            result: T = value
            return result
        finally:
            # This frame is in the traceback of the error, which must not lead back to the error.
            del future, error

    def finish(self) -> None:
        """Ends the thread behind its present job. Does not wait: the thread may be in a long step."""
        self._jobs.put(None)


def _do(future: Future[tuple[Any, BaseException | None]], function: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        # As a result: a future cannot carry every exception (StopIteration).
        future.set_result(outcome(function))
        # This frame is behind those in the traceback of an error, and must not lead back to the error.
        del future


class ReturnedValue(Exception):
    """A generator has returned a value."""


async def answer(function: Callable[[Any], Any], argument: object, run: Run, emit: Emit) -> None:
    """Emits every value that the function yields or returns, in their order. An async function runs on this loop, any other
    in a thread. The function is suspended at a `yield` while the reader is too far behind.

    Raises: what the function or `emit` raises; ReturnedValue.
    """
    thread = None if is_async(function) else CallThread()
    try:
        if thread is None:
            result = function(argument)
        else:
            result = await thread.run(partial(_begin, function, argument, run, emit))
        if inspect.isawaitable(result):
            result = await result
        if inspect.isgenerator(result):
            thread = thread or CallThread()
            await thread.run(partial(_drain, result, run, emit))
        elif inspect.isasyncgen(result):
            await _drain_async(result, run, emit)
        else:
            for value in _returned(result):
                emit(value)
                await run.room()
    finally:
        if thread is not None:
            thread.finish()


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it only makes a coroutine or an async generator."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in (function, call))


def _begin(function: Callable[[Any], Any], argument: object, run: Run, emit: Emit) -> object:
    """In the function's thread: what is left for the loop."""
    result = function(argument)
    if not inspect.isgenerator(result):
        return result
    _drain(result, run, emit)
    return None


def _drain(generator: Generator[object, Any, object], run: Run, emit: Emit) -> None:
    try:
        while not run.asked_to_stop():
            try:
                value = next(generator)
            except StopIteration as end:
                if end.value is not None:
                    raise ReturnedValue from None
                return
            emit(value)
            run.room_in_thread()
    finally:
        run.closing = True
        try:
            generator.close()
        except BaseException as error:  # noqa: BLE001  # no caller is left
            _log_failed_close(error)


async def _drain_async(generator: AsyncGenerator[object, Any], run: Run, emit: Emit) -> None:
    try:
        async for value in generator:
            if run.stopped:
                raise asyncio.CancelledError
            emit(value)
            await run.room()
    finally:
        run.closing = True
        try:
            await generator.aclose()
        except BaseException as error:  # noqa: BLE001  # no caller is left
            _log_failed_close(error)


def _log_failed_close(error: BaseException) -> None:
    log.warning("python.close-failed", detail=summary(error))


def _returned(result: object) -> Iterable[object]:
    """A list is an answer of several parts, None an empty answer."""
    if result is None:
        return ()
    return result if isinstance(result, list | tuple) else (result,)
