"""Tells the log which line blocks an event loop. Law: one line when it is noticed and one when it is over, however long it
takes; a loop without work is not woken.

Code that holds the interpreter's lock (a regular expression, a C extension) stops the watch too: it is reported when it is
over, without its line.
"""

import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sized
from contextlib import suppress
from types import FrameType

import structlog

from adapters.python.loop_thread import LoopThread

log = structlog.get_logger("adapters.python.block_watch")

_LOOKS = 4
"""So many looks in the time after which a loop counts as blocked."""

_LIBRARIES = tuple(
    {sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {"<frozen "}
)
_FRAMES = 5


class WatchedLoop:
    """A loop, and what the watch knows of it. `after`: seconds. `under_way`: the calls on the loop."""

    def __init__(self, thread: LoopThread, under_way: Sized, after: float) -> None:
        self.thread = thread
        self.after = after
        self._under_way = under_way
        self._asked: float | None = None
        self._told = False

    def look(self) -> None:
        """For the thread of the watch."""
        now, asked = time.monotonic(), self._asked
        if asked is None:
            if len(self._under_way):
                self._told, self._asked = False, now
                with suppress(RuntimeError):
                    self.thread.loop.call_soon_threadsafe(self._answer)
        elif not self._told and now - asked >= self.after:
            self._told = True
            frame = sys._current_frames().get(self.thread.thread_id or 0)
            if frame is not None:
                log.warning("python.blocked", **self.thread.owner, seconds=round(now - asked, 1), **_place(frame))

    def _answer(self) -> None:
        """On the loop: it is not blocked, or not any more."""
        asked, self._asked = self._asked, None
        late = time.monotonic() - (asked or 0.0)
        if asked is not None and (self._told or late >= self.after):
            log.warning("python.unblocked", **self.thread.owner, seconds=round(late, 1))


class BlockWatch:
    """One daemon thread for all loops of the process, from the first one on, each until it is closed."""

    def __init__(self) -> None:
        self._loops: list[WatchedLoop] = []
        self._added = threading.Event()
        self._started = False

    def add(self, thread: LoopThread, under_way: Sized, after: float) -> None:
        self._loops.append(WatchedLoop(thread, under_way, after))
        self._added.set()
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="python block watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            for watched in tuple(self._loops):
                if watched.thread.closing:
                    self._loops.remove(watched)
                else:
                    watched.look()
            pause = min((watched.after for watched in self._loops), default=None)
            self._added.wait(None if pause is None else pause / _LOOKS)
            self._added.clear()


def _place(frame: FrameType) -> dict[str, object]:
    """The innermost line that is not of a library, and the lines that it is in the middle of."""
    stack = list(_outwards(frame))
    own = next((each for each in stack if not each.f_code.co_filename.startswith(_LIBRARIES)), frame)
    return {
        "file": own.f_code.co_filename,
        "line": own.f_lineno,
        "function": own.f_code.co_qualname,
        "frames": [f"{each.f_code.co_filename}:{each.f_lineno} {each.f_code.co_name}" for each in stack[:_FRAMES]],
    }


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


watch = BlockWatch()
