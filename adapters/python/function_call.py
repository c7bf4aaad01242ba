"""Calls a function of any kind, and emits what it yields or returns. Law: it may block, fail or ignore a cancellation; it holds
up only its own call."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from functools import partial
from typing import Any

import structlog

from adapters.python.calls import CallFailed, Failure
from adapters.python.daemon_threads import in_thread
from adapters.python.worker import Run, summary
from gateway.ports.adapter import ErrorClass

log = structlog.get_logger("adapters.python.function_call")

Emit = Callable[[object], None]
"""Takes a value of the function."""

_RETURNED = "a generator function returned a value; there an answer is yielded"


async def answer(function: Callable[[Any], Any], argument: object, run: Run, emit: Emit) -> None:
    """Emits every value that the function yields or returns, in their order. An async function runs on this loop, any other
    in a thread. The function is suspended at a `yield` while the reader is too far behind.

    Raises: what the function or `emit` raises; CallFailed (CONTRACT_BROKEN) for a generator that returns a value.
    """
    if is_async(function):
        result = function(argument)
    else:
        result = await in_thread(partial(_begin, function, argument, run, emit))
    if inspect.isawaitable(result):
        result = await result
    if inspect.isgenerator(result):
        await in_thread(partial(_drain, result, run, emit))
    elif inspect.isasyncgen(result):
        await _drain_async(result, run, emit)
    else:
        for value in _returned(result):
            emit(value)
            await run.room()


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
                    raise CallFailed(Failure(ErrorClass.CONTRACT_BROKEN, _RETURNED)) from None
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
