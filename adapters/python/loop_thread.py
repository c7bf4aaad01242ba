"""An event loop in a thread of its own, for the functions of an operator.

Law: nothing that the code on the loop raises ends the loop, and nothing that the code does keeps another loop waiting.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

import structlog

from adapters.python.daemon_threads import DaemonThreads
from adapters.python.forks import end_copies_with_this, end_copy, runs_functions
from gateway.foundation.tracebacks import drop_tracebacks

log = structlog.get_logger("adapters.python.loop_thread")

T = TypeVar("T")

_GRACE = 1.0
"""Seconds that the tasks of a loop have to end when the loop does."""


class Mailbox(Generic[T]):
    """Letters to an event loop. Those that come before the loop looks are delivered together: a wake-up costs more than
    everything else on the way. `wake` is the loop's `call_soon_threadsafe`, or `call_soon` if no other thread posts."""

    __slots__ = ("_awake", "_deliver", "_letters", "_wake")

    def __init__(self, wake: Callable[[Callable[[], None]], object], deliver: Callable[[list[T]], None]) -> None:
        self._wake = wake
        self._deliver = deliver
        self._letters: deque[T] = deque()
        self._awake = False

    def post(self, letter: T) -> None:
        """A letter to a loop that is closed is lost."""
        self._letters.append(letter)
        if not self._awake:
            self._awake = True
            with suppress(RuntimeError):
                self._wake(self._look)

    def _look(self) -> None:
        # In this order: a letter that comes from now on wakes the loop again.
        self._awake = False
        letters = [self._letters.popleft() for _ in range(len(self._letters))]
        if letters:
            self._deliver(letters)


Step = Callable[[], None]
"""A letter that says what to do."""


def do_all(steps: list[Step]) -> None:
    for step in steps:
        step()


class LoopThread:
    """`owner` names the agent in the log: `{"agent": "mine"}`. `escaped` is told of an exception that has stopped the
    loop, with the context of the callback that raised it; then the loop runs on."""

    def __init__(
        self, owner: Mapping[str, str], escaped: Callable[[BaseException, contextvars.Context | None], None]
    ) -> None:
        end_copies_with_this()
        self.owner = owner
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(DaemonThreads())
        self.thread_id: int | None = None
        self._escaped = escaped
        self.closing = False
        self._over: Future[None] = Future()

    def start(self) -> None:
        """A daemon thread, so that the process can end before the code on the loop does."""
        threading.Thread(target=self.run, name=f"python {' '.join(self.owner.values())}", daemon=True).start()

    def run(self) -> None:
        """Runs the loop in this thread until `close`."""
        self.thread_id = threading.get_ident()
        asyncio.set_event_loop(self.loop)
        runs_functions(self.loop)
        try:
            while not self.closing:
                self._run_once()
            self._cancel_tasks()
        finally:
            self._over.set_result(None)

    def _run_once(self) -> None:
        """Returns also when the code on the loop has stopped it."""
        try:
            self.loop.run_forever()
        except BaseException as error:  # noqa: BLE001  # SystemExit and KeyboardInterrupt pass through an event loop
            end_copy(error)
            handle = _handle(error)
            self._escaped(error, None if handle is None else handle._context)  # type: ignore[attr-defined]
            drop_tracebacks(error)
            if handle is not None:
                # A task whose exception nobody asks for keeps the frames, and the handle in these keeps the task.
                handle.cancel()

    def _cancel_tasks(self) -> None:
        self.loop.set_task_factory(None)
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        with suppress(BaseException):
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=_GRACE))
        left = sum(not task.done() for task in tasks)
        if left:
            log.warning("python.not-ended", **self.owner, tasks=left)
            return
        with suppress(BaseException):
            self.loop.run_until_complete(asyncio.wait_for(self.loop.shutdown_asyncgens(), _GRACE))
        self.loop.close()

    def close(self) -> Future[None]:
        """Cancels the tasks of the loop, and ends it. The future is done when the loop has ended."""
        self.closing = True
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        return self._over


def _handle(error: BaseException) -> asyncio.Handle | None:
    """The callback, or the step of a task, that an exception has left."""
    step = error.__traceback__
    while step is not None:
        handle = step.tb_frame.f_locals.get("self")
        if isinstance(handle, asyncio.Handle):
            return handle
        step = step.tb_next
    return None
