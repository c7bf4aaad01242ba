"""The end of a process. Law: once the gateway has closed everything, code of the operator holds up the end of `serve` for no
longer than a bound.

At its end Python waits for threads that are no daemons, for the jobs of executors, for processes of `multiprocessing` and for
functions of `atexit`, however long they take.
"""

import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any, NoReturn

_GRACE = 3.0
"""Seconds that code of the operator has to end."""
_TELLING = 1.0
"""Seconds that the line of the log may take: a standard error that nobody reads must not keep the process from ending."""

_bounded = False


def bound_end() -> None:
    """For a process that serves: the bound is in force for its end."""
    global _bounded
    _bounded = True


def end_process(code: int) -> NoReturn:
    """Ends this process as Python does; after `bound_end` at the bound or at the next signal, whatever is still running."""
    if _bounded:
        told = threading.Event()
        for target, given in ((_tell, (told,)), (_end, (told, code))):
            threading.Thread(target=target, args=given, name="end of serve", daemon=True).start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(code))
    sys.exit(code)


def _tell(told: threading.Event) -> None:
    import structlog

    told.wait(_GRACE)
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    steps = traceback.extract_stack(frame)[::-1] if frame is not None else []
    structlog.get_logger("gateway.foundation.ending").warning(
        "end.forced",
        seconds=_GRACE,
        threads=[thread.name for thread in _threads()],
        processes=[process.pid for process in _processes()],
        frames=[f"{step.filename}:{step.lineno} {step.name}" for step in steps],
    )
    told.set()


def _end(told: threading.Event, code: int) -> None:
    told.wait(_GRACE + _TELLING)
    for process in _processes():
        with suppress(Exception):
            process.kill()
    os._exit(code)


def _threads() -> list[threading.Thread]:
    """Those for which Python waits."""
    executors = sys.modules.get("concurrent.futures.thread")
    working = executors._threads_queues if executors is not None else ()
    others = (each for each in threading.enumerate() if each is not threading.main_thread())
    return [each for each in others if not each.daemon or each in working]


def _processes() -> list[Any]:
    """Of `multiprocessing`. Where code of the operator has not imported it, this does not either."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing.active_children() if multiprocessing is not None else []
