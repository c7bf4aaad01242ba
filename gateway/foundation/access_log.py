"""The access log: a line for each request and for each turn.

Law: the caller that adds a line waits for nothing. A thread writes the lines, several at a time; where standard error takes
nothing, lines are dropped and counted, and nothing else stops.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from gateway.foundation.logs import write_lines

Line = tuple[int, dict[str, object]]
"""The time of a line in milliseconds since 1970, and its facts, `event` and `level` among them."""

_PAUSE_SECONDS = 0.1
_MOST = 20_000
_END_SECONDS = 1.0


class AccessLog:
    """Use inside `with`; at its end what was added is written."""

    def __init__(self, *, now: Callable[[], int], write: Callable[[Sequence[Line]], None] = write_lines) -> None:
        """`now` gives milliseconds since 1970."""
        self._now = now
        self._write = write
        self._added: deque[tuple[int, str, Mapping[str, object]]] = deque()
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

    def add(self, event: str, facts: Mapping[str, object]) -> None:
        """`facts` are JSON values, and nobody changes them any more."""
        if len(self._added) >= _MOST:
            self._dropped += 1
            return
        self._added.append((self._now(), event, facts))
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
        lines: list[Line] = []
        while self._added:
            at, event, facts = self._added.popleft()
            lines.append((at, {"event": event, **facts, "level": "info"}))
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append((self._now(), {"event": "access.dropped", "lines": dropped, "level": "warning"}))
        if lines:
            self._write(lines)
