"""The access log: a line for each request and for each turn.

Law: the caller that adds a line waits for nothing. A thread writes the lines, several at a time; where standard error takes
nothing, lines are dropped and counted, and nothing else stops.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from gateway.foundation.logs import LogLine, TimedLine, write_lines

_PAUSE_SECONDS = 0.1
_MOST = 20_000
_END_SECONDS = 1.0


class _Dropped(LogLine, kw_only=True):
    lines: int


class AccessLog:
    """Use inside `with`; at its end what was added is written."""

    def __init__(self, *, now: Callable[[], int], write: Callable[[Sequence[TimedLine]], None] = write_lines) -> None:
        """`now` gives milliseconds since 1970."""
        self._now = now
        self._write = write
        self._added: deque[TimedLine] = deque()
        self._dropped = 0
        self._waiting = threading.Event()
        self._ending = threading.Event()
        # As a daemon: a standard error that nobody reads must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="access-log", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._waiting.set()
        self._thread.join(_END_SECONDS)

    def add(self, line: LogLine) -> None:
        """Nobody changes the line any more."""
        if len(self._added) >= _MOST:
            self._dropped += 1
            return
        self._added.append((self._now(), line))
        if not self._waiting.is_set():
            self._waiting.set()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._waiting.wait()
            self._ending.wait(_PAUSE_SECONDS)
            self._waiting.clear()
            self._write_added()
        self._write_added()

    def _write_added(self) -> None:
        lines: list[TimedLine] = []
        while self._added:
            lines.append(self._added.popleft())
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append((self._now(), _Dropped(event="access.dropped", level="warning", lines=dropped)))
        if lines:
            self._write(lines)
