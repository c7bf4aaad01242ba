"""Keeps the write-ahead log in memory while it is written. Law: it is a wish of the system; nothing depends on it.

A frame of the log begins and ends within pages of the system. Where that has dropped them, as small virtual machines do
within seconds, each is read from the disk before it is written, and a commit takes twice as long.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PERIOD = 1.0
"""Seconds. Asking costs some 50 us where all of the log is there."""


class WarmLog:
    """Of the database at this path."""

    def __init__(self, path: str, now: Callable[[], float] = time.monotonic) -> None:
        self._path = Path(f"{path}-wal")
        self._now = now
        self._next = 0.0

    def keep(self) -> None:
        """Asks for all of it, at most once in a while; does not wait for it."""
        now = self._now()
        if now >= self._next and hasattr(os, "posix_fadvise"):
            self._next = now + _PERIOD
            with suppress(OSError), self._path.open("rb", buffering=0) as log:
                os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
