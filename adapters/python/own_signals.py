"""Signals that code in a thread sends to its own process. Law: none that would end or stop the gateway is sent; the log names
the line.

The functions that send are replaced, because the signal itself does not tell its sender to a handler of Python, and a mask of
signals would be inherited by the programs that the code starts.
"""

import _thread
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import structlog

log = structlog.get_logger("adapters.python.own_signals")

_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
"""By default they do nothing to a process that runs."""
_TIMERS = {
    signal.ITIMER_REAL: signal.SIGALRM,
    signal.ITIMER_VIRTUAL: signal.SIGVTALRM,
    signal.ITIMER_PROF: signal.SIGPROF,
}
_LINES = 5


def _killed(process: int, number: int) -> int:
    return number if process in (0, os.getpid(), -os.getpgrp()) else 0


def _killed_group(group: int, number: int) -> int:
    return number if group in (0, os.getpgrp()) else 0


def _interrupted(number: int = signal.SIGINT) -> int:
    return number


def _raised(number: int) -> int:
    return number


def _killed_thread(_: int, number: int) -> int:
    return number


def _alarmed(seconds: int) -> int:
    return signal.SIGALRM if seconds else 0


def _timed(which: int, seconds: float, _interval: float = 0.0) -> int:
    return _TIMERS.get(which, 0) if seconds else 0


_SENDERS: tuple[tuple[Any, str, Callable[..., int]], ...] = (
    (_thread, "interrupt_main", _interrupted),
    (os, "kill", _killed),
    (os, "killpg", _killed_group),
    (signal, "alarm", _alarmed),
    (signal, "pthread_kill", _killed_thread),
    (signal, "raise_signal", _raised),
    (signal, "setitimer", _timed),
)
"""The module and the name of a function, and the number of the signal that it sends to its own process, or 0."""


@cache
def refuse_own_signals() -> None:
    """For this process, for ever. Its main thread, which runs no code of functions, may send what it likes."""
    for module, name, own in _SENDERS:
        setattr(module, name, _refusing(getattr(module, name), own))


def _refusing(send: Callable[..., Any], own: Callable[..., int]) -> Callable[..., Any]:
    @wraps(send)
    def sent_or_refused(*given: Any) -> Any:
        if threading.current_thread() is threading.main_thread() or not _ends(own(*given)):
            return send(*given)
        lines = "".join(traceback.format_stack(sys._getframe(1), _LINES)).rstrip()
        log.error("python.exit-refused", detail=f"{send.__name__}{given} would end the gateway:\n{lines}")
        return None

    return sent_or_refused


def _ends(number: int) -> bool:
    if number in (signal.SIGINT, signal.SIGTERM):
        return True
    return 0 < number < signal.NSIG and number not in _HARMLESS and signal.getsignal(number) is signal.SIG_DFL
