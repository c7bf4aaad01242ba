"""The copy of a process that the code of a function has forked. Law: the copy ends where that code comes back to the gateway's,
and on Linux at the latest with the process that it is a copy of; until then it runs nothing else, and nothing that the function
emits in it counts."""

import asyncio
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.thread import _WorkItem
from contextlib import suppress
from typing import Any

from msgspec import UNSET, UnsetType
from structlog.contextvars import get_contextvars

from gateway.foundation.logs import LogLine, write_lines

_TOLD = "its code has forked this process, and the copy came back from that code: end the copy with os._exit()"


class _Thread(threading.local):
    """`runs_functions`: the code of functions runs in this thread, on the `loop` if there is one."""

    runs_functions = False
    loop: asyncio.AbstractEventLoop | None = None


_thread = _Thread()
_copied = False
_life: tuple[int, int | None] | None = None
"""A pipe whose one end for writing is that of the original process."""


class _CopyEnded(LogLine, kw_only=True):
    event: str = "python.copy-ended"
    level: str = "error"
    agent: str | UnsetType
    tool: str | UnsetType
    detail: str
    pid: int


def runs_functions(loop: asyncio.AbstractEventLoop | None = None) -> None:
    """To be called in each thread that runs the code of functions, before it does."""
    _thread.runs_functions, _thread.loop = True, loop


def end_copies_with_this() -> None:
    """The copies of this process, and theirs, end with it, however it ends. Raises: OSError."""
    global _life
    if _life is None:
        _life = os.pipe()


def end_copy(error: BaseException | None = None) -> None:
    """Returns unless this process is a copy. `error` is what the code of the function raised: sys.exit() has its exit code."""
    if not _copied:
        return
    if isinstance(error, SystemExit):
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
    with suppress(Exception):
        # The lock of the former one may be held by a thread that this process does not have.
        sys.stderr = os.fdopen(2, "w", closefd=False)
        bound = get_contextvars()
        line = _CopyEnded(agent=bound.get("agent", UNSET), tool=bound.get("tool", UNSET), detail=_TOLD, pid=os.getpid())
        write_lines([(time.time_ns() // 1_000_000, line)])
    os._exit(1)


def outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What the code of a function returns in this thread, or what it raises. A future cannot carry a StopIteration."""
    runs_functions()
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001  # for the task that waits for it
        end_copy(error)
        if not isinstance(error, StopIteration):
            return None, error
        told = RuntimeError(f"it raised {error!r}")
        told.__cause__ = error
        return None, told
    end_copy()
    return result, None


class _EndOfCopy(Future[Any]):
    """What a job of an executor has come to. In the copy nobody waits for it, and its thread would wait for jobs for ever."""

    def set_result(self, result: Any) -> None:
        end_copy()

    def set_exception(self, exception: BaseException | None) -> None:
        end_copy(exception)


def _in_copy() -> None:
    global _copied
    _end_with_original()
    job = _job()
    if job is not None:
        job.future = _EndOfCopy()
    _copied = _thread.runs_functions or job is not None
    if _thread.loop is not None:
        # No other step of the loop follows the present one.
        _thread.loop._ready.clear()  # type: ignore[attr-defined]
        _thread.loop.call_soon(end_copy)


def _job() -> Any:
    """The job of a ThreadPoolExecutor that this thread is at, if any."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is _WorkItem.run.__code__:
            return frame.f_locals["self"]
    return None


def _end_with_original() -> None:
    """The kernel kills this process when the pipe has no end for writing any more, whatever it is at. PR_SET_PDEATHSIG does so
    when the thread ends that has forked."""
    global _life
    if _life is None or sys.platform != "linux":
        return
    reading, writing = _life
    if writing is not None:
        os.close(writing)
        _life = reading, None
    with suppress(OSError):
        # Opened anew, because copies would share who gets the signal.
        own = os.open(f"/proc/self/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
        with suppress(BlockingIOError):
            os.read(own, 1)
            os._exit(1)


os.register_at_fork(after_in_child=_in_copy)
