"""SIGHUP before a gateway serves. Law: one that asks for a reload is kept until a reload is possible, and ends nothing."""

import os
import signal
from types import FrameType

_kept = False


def keep_hangups() -> None:
    """For the main thread. From now on a SIGHUP is kept, unless the process ignores it. It ends the process where the terminal
    has been closed, and a copy of the process."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        return
    process, had_terminal = os.getpid(), os.isatty(0)

    def arrived(number: int, _: FrameType | None) -> None:
        global _kept
        if os.getpid() == process and (not had_terminal or os.isatty(0)):
            _kept = True
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    signal.signal(signal.SIGHUP, arrived)


def take_hangup() -> bool:
    """Whether one has been kept since the last call."""
    global _kept
    kept, _kept = _kept, False
    return kept
