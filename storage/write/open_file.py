"""The database file that the writer has open. Law: a file that was removed or replaced keeps nothing for the next process, so
nothing more is acknowledged from it."""

import time
from collections.abc import Callable
from pathlib import Path

from gateway.ledger.errors import LedgerUnavailable

_PERIOD = 1.0
"""Seconds between two looks of the writer."""


class OpenFile:
    def __init__(self, path: str, now: Callable[[], float] = time.monotonic) -> None:
        """`path` names the file that was just opened."""
        # A process may change its working directory later.
        self._path = Path(path).absolute()
        self._now = now
        self._next = now() + _PERIOD
        self._opened = self._found()
        self._gone = False

    def gone(self) -> bool:
        """As `gone_now`, found once in a period. Only one thread calls it."""
        now = self._now()
        if now >= self._next:
            self._next = now + _PERIOD
            self._gone = self.gone_now()
        return self._gone

    def gone_now(self) -> bool:
        """Whether the path names no file any more, or another one."""
        try:
            return self._found() != self._opened
        except OSError:
            # Nothing is known of a file that may not be looked for; it can still be written.
            return False

    def error(self) -> LedgerUnavailable:
        text = (
            f"{str(self._path)!r} was removed or replaced while it was in use: nothing is stored any more; put the file back, "
            "or stop the gateway, restore a backup and start it again"
        )
        return LedgerUnavailable(text, "removed")

    def _found(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino
