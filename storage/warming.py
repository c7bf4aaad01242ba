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
_PIECE = 128 * 1024
"""Bytes. Linux cuts what is asked for to what it would read ahead at most, which is this by default."""
_ENOUGH = 16_000_000
"""Bytes, from the beginning, where the next frames are mostly written: what `journal_size_limit` leaves of a log."""


class WarmLog:
    """Of the database at this path."""

    def __init__(self, path: str, now: Callable[[], float] = time.monotonic) -> None:
        # SQLite keeps it beside the file itself, whatever links to that.
        self._path = Path(f"{os.path.realpath(path)}-wal")
        self._now = now
        self._next = 0.0

    def keep(self) -> None:
        """Asks for it, at most once in a while; does not wait for it."""
        now = self._now()
        if now >= self._next and hasattr(os, "posix_fadvise"):
            self._next = now + _PERIOD
            with suppress(OSError), self._path.open("rb", buffering=0) as log:
                for offset in range(0, min(os.fstat(log.fileno()).st_size, _ENOUGH), _PIECE):
                    os.posix_fadvise(log.fileno(), offset, _PIECE, os.POSIX_FADV_WILLNEED)
