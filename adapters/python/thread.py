"""A thread for one call of a function. Law: a function that never returns holds up nothing else."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


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
        future: Future[Callable[[], T]] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(_outcome(function))

        self._jobs.put(job)
        return (await asyncio.wrap_future(future))()

    def finish(self, last: Callable[[], None] | None = None) -> None:
        """Runs `last`, then ends the thread. Does not wait: the thread may be in a long step."""
        if last is not None:
            self._jobs.put(last)
        self._jobs.put(None)


def _outcome(function: Callable[[], T]) -> Callable[[], T]:
    """Calling it returns the value or raises the exception: a future cannot carry every exception (StopIteration)."""
    try:
        value = function()
    except BaseException as error:  # noqa: BLE001  # raised again in the event loop
        return partial(_raise, error)
    return lambda: value


def _raise(error: BaseException) -> Any:
    raise error
