"""The process that has started this one. Law: this one ends with it, however it ends, and whatever this one is doing then."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """From now on the kernel kills this process when its parent ends. `parent` is the process that it must be. Linux alone.

    Source: prctl(2), PR_SET_PDEATHSIG; the parent is the thread that has started this process.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it has ended before
        os.kill(os.getpid(), signal.SIGKILL)
