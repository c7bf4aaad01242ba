"""The threads of functions that block, and of `asyncio.to_thread` on a loop of functions. Law: the end of the process waits for
none of them.

The interpreter waits at its end for the threads of a ThreadPoolExecutor, for as long as their jobs take.
"""

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from adapters.python.forks import outcome

P = ParamSpec("P")
T = TypeVar("T")

_MOST = 32


class DaemonThreads(ThreadPoolExecutor):
    """A ThreadPoolExecutor because asyncio accepts nothing else. Its jobs run in daemon threads, at most 32 at a time."""

    def __init__(self) -> None:
        super().__init__(_MOST)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._spare = threading.Semaphore(0)
        self._begun = 0

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._jobs.put(partial(_do, future, partial(function, *args, **kwargs)))
        if not self._spare.acquire(blocking=False) and self._begun < _MOST:
            self._begun += 1
            threading.Thread(target=self._work, name="python to_thread", daemon=True).start()
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            # The next job may be long in coming.
            job = None
            self._spare.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads behind the jobs that are queued. Waits for nothing."""
        for _ in range(self._begun):
            self._jobs.put(None)


def _do(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    result, error = outcome(function)
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
        # This frame is behind those in the traceback of the error, and must not lead back to the error.
        del future, error
    with suppress(Exception):
        # What the function has printed without an end of a line.
        sys.stdout.flush()


async def in_thread(function: Callable[[], T]) -> T:
    """Runs it in a thread of its own, with the context variables of the caller. Raises: the exception of the function."""
    future: Future[T] = Future()
    target, given = copy_context().run, (_do, future, function)
    threading.Thread(target=target, args=given, name="python-agent", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    finally:
        # This frame is in the traceback of the error, which must not lead back to the error.
        del future, given
