"""Lines of standard input, from a person or from a pipe.

Law: reading lines while an answer comes does not block it, and a line that comes early is kept.
"""

import os
import select
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Self, TextIO

_CHUNK = 4096
_AHEAD = 1000
"""Lines that are read ahead; a program that writes more has to wait."""


class LineInput:
    """Reads lines from one stream. `typed` says that a person types the lines and sees prompts. The object outlives the
    futures that it waits for."""

    def __init__(self, stream: TextIO, out: TextIO, err: TextIO) -> None:
        self.typed = stream.isatty()
        self._edited = self.typed and out.isatty() and _has_line_editor()
        self._fd = stream.fileno()
        self._err = err
        self._ahead: deque[str] = deque()
        self._part = b""
        self._ended = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)  # signal.set_wakeup_fd requires it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _stop_waking(self._wake_writer)
        os.close(self._wake_writer)
        os.close(self._wake_reader)

    def read(self, prompt: str) -> str | None:
        """The next line without its end, None after the last one. Raises: KeyboardInterrupt."""
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

    def read_fresh(self, prompt: str) -> str | None:
        """As `read`, but nothing that a person typed before the prompt answers it. Raises: KeyboardInterrupt.

        Lines that were read ahead are kept for later; what the terminal still holds is dropped. Ctrl-D ends this prompt
        and not the input.
        """
        if not self.typed:
            return self.read(prompt)
        before = list(self._ahead)
        self._ahead.clear()
        self._part = b""
        with suppress(ImportError):  # only some systems have terminals of this kind
            import termios

            termios.tcflush(self._fd, termios.TCIFLUSH)
        try:
            return self.read(prompt)
        finally:
            self._ended = False
            self._ahead.extendleft(reversed(before))

    def put_back(self, line: str) -> None:
        """Makes a line that was read the next one again."""
        self._ahead.appendleft(line)

    def wait_for(self, done: Future[Any], urgent: Callable[[str], bool]) -> None:
        """Returns when `done` is done. Lines that come meanwhile are kept, except those that `urgent` takes at once.

        A person's line is urgent whenever it comes; a line of a pipe waits for the lines before it. Raises: KeyboardInterrupt.
        """
        while self._ahead and urgent(self._ahead[0]):
            self._ahead.popleft()
        done.add_done_callback(lambda _: os.write(self._wake_writer, b"."))
        with _signals_wake(self._wake_writer):
            while not done.done():
                full = self._ended or len(self._ahead) >= _AHEAD
                ready, _, _ = select.select([self._wake_reader] if full else [self._wake_reader, self._fd], [], [])
                if self._wake_reader in ready:
                    os.read(self._wake_reader, _CHUNK)
                if self._fd in ready:
                    for line in self._read():
                        if (self._ahead and not self.typed) or not urgent(line):
                            self._ahead.append(line)

    def _read(self) -> list[str]:
        """The lines that can be read; blocks until the first byte or the end."""
        chunk = os.read(self._fd, _CHUNK)
        self._ended = not chunk
        *whole, self._part = (self._part + chunk).split(b"\n")
        if self._ended and self._part:
            whole, self._part = [self._part], b""
        return [line.removesuffix(b"\r").decode(errors="surrogateescape") for line in whole]


@contextmanager
def _signals_wake(fd: int) -> Iterator[None]:
    """Lets a Ctrl-C just before `select` end it as well; it would otherwise wait for the next input."""
    if threading.current_thread() is not threading.main_thread():  # the only one that gets signals
        yield
        return
    before = signal.set_wakeup_fd(fd)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


def _stop_waking(fd: int) -> None:
    """Also after a Ctrl-C that came while the former descriptor was being restored."""
    if threading.current_thread() is threading.main_thread():
        now = signal.set_wakeup_fd(-1)
        if now != fd:
            signal.set_wakeup_fd(now)


def _edited_line(prompt: str) -> str:
    """Ctrl-C empties a line, as in a shell. Raises: KeyboardInterrupt at an empty line, EOFError."""
    import readline

    while True:
        try:
            return input(prompt)
        except KeyboardInterrupt:
            if not readline.get_line_buffer():
                raise
            print()


def _has_line_editor() -> bool:
    """Importing readline makes `input` edit and remember lines."""
    try:
        import readline
    except ImportError:
        return False
    return bool(readline.__name__)
