"""Lines that a person types, or a program writes into a pipe. Law: while something else goes on they are read without
holding it up, and a line that is not for now is not lost."""

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TextIO

_CHUNK = 4096
_AHEAD = 1000
"""Lines that are read before they are asked for; a program that writes more has to wait."""


class Lines:
    """Reads one stream. `typed`: by a person, who sees prompts. Outlives the futures that it waits for."""

    def __init__(self, stream: TextIO, out: TextIO, err: TextIO) -> None:
        self.typed = stream.isatty()
        self._edited = self.typed and out.isatty() and _has_line_editor()
        self._fd = stream.fileno()
        self._err = err
        self._ahead: deque[str] = deque()
        self._part = b""
        self._ended = False
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)  # as a signal's handler wants it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _wake_no_more(self._wakes)
        os.close(self._wakes)
        os.close(self._woken)

    def next(self, prompt: str) -> str | None:
        """The next line without its end, None behind the last one. Raises: KeyboardInterrupt."""
        if self._edited and not self._ahead and not self._ended:
            try:
                return _edited_line(prompt)
            except EOFError:
                self._ended = True
        elif self.typed:
            self._err.write(prompt if not self._ahead else f"{prompt}{self._ahead[0]}\n")
            self._err.flush()
        while not self._ahead and not self._ended:
            self._ahead.extend(self._read())
        if self._ahead:
            return self._ahead.popleft()
        if self.typed:
            self._err.write("\n")
        return None

    def fresh(self, prompt: str) -> str | None:
        """As `next`, but what a person has typed before this prompt came is no answer to it. Raises: KeyboardInterrupt.

        Lines that were read already stay for later; what the terminal still holds is dropped. An end that a person types
        here ends this prompt and not the lines.
        """
        if not self.typed:
            return self.next(prompt)
        before = list(self._ahead)
        self._ahead.clear()
        self._part = b""
        with suppress(ImportError):  # only some systems have terminals of this kind
            import termios

            termios.tcflush(self._fd, termios.TCIFLUSH)
        try:
            return self.next(prompt)
        finally:
            self._ended = False
            self._ahead.extendleft(reversed(before))

    def again(self, line: str) -> None:
        """The line that was just read is the next one once more."""
        self._ahead.appendleft(line)

    def until(self, done: Future[Any], urgent: Callable[[str], bool]) -> None:
        """Returns when `done` is. Lines that come meanwhile are kept, but for those that `urgent` takes at once.

        A person means what they type now; in a pipe a line means what is before it. Raises: KeyboardInterrupt.
        """
        while self._ahead and urgent(self._ahead[0]):
            self._ahead.popleft()
        done.add_done_callback(lambda _: os.write(self._wakes, b"."))
        with _signals_wake(self._wakes):
            while not done.done():
                full = self._ended or len(self._ahead) >= _AHEAD
                ready, _, _ = select.select([self._woken] if full else [self._woken, self._fd], [], [])
                if self._woken in ready:
                    os.read(self._woken, _CHUNK)
                if self._fd in ready:
                    for line in self._read():
                        if (self._ahead and not self.typed) or not urgent(line):
                            self._ahead.append(line)

    def _read(self) -> list[str]:
        """The lines that are there, waiting for a byte or the end."""
        chunk = os.read(self._fd, _CHUNK)
        self._ended = not chunk
        *whole, self._part = (self._part + chunk).split(b"\n")
        if self._ended and self._part:
            whole, self._part = [self._part], b""
        return [line.removesuffix(b"\r").decode(errors="surrogateescape") for line in whole]


@contextmanager
def _signals_wake(fd: int) -> Iterator[None]:
    """A Ctrl-C that comes just before the wait begins ends it as well: else it would be heard when something else happens."""
    if threading.current_thread() is not threading.main_thread():  # which alone is told of signals
        yield
        return
    before = signal.set_wakeup_fd(fd)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


def _wake_no_more(fd: int) -> None:
    """A Ctrl-C may have come just where what was before was to be put back."""
    if threading.current_thread() is threading.main_thread():
        now = signal.set_wakeup_fd(-1)
        if now != fd:
            signal.set_wakeup_fd(now)


def _edited_line(prompt: str) -> str:
    """As a shell does it, Ctrl-C empties a line that is not empty. Raises: KeyboardInterrupt at an empty one, EOFError."""
    import readline

    while True:
        try:
            return input(prompt)
        except KeyboardInterrupt:
            if not readline.get_line_buffer():
                raise
            print()


def _has_line_editor() -> bool:
    """`input` edits lines, and remembers them, once this module is imported."""
    try:
        import readline
    except ImportError:
        return False
    return bool(readline.__name__)
