"""Where the lines of an audit log go. Law: the lines of a file are one chain, whichever process writes them: a writer has the
file to itself from the look at its end until its line is there.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import structlog

from gateway.telemetry.audit_chain import FIRST, Chain, latest_hash

log = structlog.get_logger("gateway.telemetry.audit")

_MODE = 0o600
_STDOUT = 1

_ENDS = (4 * 1024, 64 * 1024)
"""Bytes at the end of a file in which its latest whole line is looked for, one after the other; a line has about 500."""

_PATIENCE = 0.05
"""Seconds for which a line waits for another writer, which needs some microseconds. The event loop stands still then."""

_PAUSE = 0.0005

Facts = dict[str, object]


class Place(Protocol):
    def append(self, at: str, facts: Facts) -> None:
        """Raises: OSError where the line is not there, or not all of it."""

    def reopen(self) -> None:
        """Goes on in what has the name now. Raises: OSError."""

    def sync(self) -> None:
        """Brings what was written to the disk. Raises: OSError."""

    def close(self) -> None: ...


def place_at(path: Path | None, chain: Chain) -> Place:
    """Standard output where there is no `path`. Raises: OSError where it cannot be opened."""
    if path is None:
        return Stream(lambda: os.dup(_STDOUT), chain)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        return Stream(lambda: os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), chain)
    return SharedFile(path, chain)


def obstacle(path: Path) -> str | None:
    """What would keep this process from opening a place at the path, in the words of the system; None where nothing is seen.
    Only looks."""
    real = Path(os.path.realpath(path))
    try:
        kind = real.stat().st_mode
    except FileNotFoundError:
        return _denial(real.parent, os.W_OK | os.X_OK)
    except OSError as error:
        return error.strerror
    if stat.S_ISDIR(kind):
        return os.strerror(errno.EISDIR)
    return _denial(real, os.W_OK | (os.R_OK if stat.S_ISREG(kind) else 0))


def _denial(path: Path, wanted: int) -> str | None:
    if os.access(path, wanted):
        return None
    try:
        only_read = os.statvfs(path).f_flag & os.ST_RDONLY
    except OSError as error:
        return error.strerror
    return os.strerror(errno.EROFS if only_read else errno.EACCES)


class Stream:
    """Standard output, or a pipe: nobody can read its end, so each process has a chain of its own."""

    def __init__(self, opened: Callable[[], int], chain: Chain) -> None:
        self._opened = opened
        self._chain = chain
        self._file = opened()

    def append(self, at: str, facts: Facts) -> None:
        line = self._chain.line(at, facts)
        if os.write(self._file, line) < len(line):
            raise OSError("a part of a line was written")

    def reopen(self) -> None:
        before, self._file = self._file, self._opened()
        os.close(before)

    def sync(self) -> None:
        """Nothing of it is kept."""

    def close(self) -> None:
        os.close(self._file)


class SharedFile:
    """A file that several processes may append to."""

    def __init__(self, path: Path, chain: Chain) -> None:
        self._path = path
        self._chain = chain
        self._file = self._open()
        self._size = 0
        self._head = FIRST
        """The hash of the latest line of the file when it had `_size`."""
        self._waits = True

    def append(self, at: str, facts: Facts) -> None:
        with self._locked():
            size = os.fstat(self._file).st_size
            head, begun = self._end(size)
            line = self._chain.line(at, facts, head)
            data = b"\n" + line if begun else line
            written = os.write(self._file, data)
            if written < len(data) - 1:  # without its end of line it is whole once the next writer has ended it
                self._chain.repeat_number()
                raise OSError("a part of a line was written")
            self._head = self._chain.head
            self._size = size + len(data)

    def reopen(self) -> None:
        """A file that is empty goes on from the line that the one before ended with."""
        with self._locked():
            self._head, _ = self._end(os.fstat(self._file).st_size)
        before, self._file = self._file, self._open()
        self._size = 0
        os.close(before)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)

    def _end(self, size: int) -> tuple[str, bool]:
        """The hash that a line at the end of the file goes on from, and whether the end of a line is missing there. A file that
        is shorter than it was goes on from the line that this process knows, so that it shows."""
        if size == self._size:
            return self._head, False
        end, found = b"", None
        for span in _ENDS:
            end = os.pread(self._file, span, max(0, size - span))
            found = latest_hash(end) if size > self._size else self._head
            if found is not None:
                break
        return found or self._head, bool(end) and not end.endswith(b"\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A writer that stands still with the lock holds nobody up for long: a line that may not fit is better than none, and
        `audit verify` names it."""
        until = time.monotonic() + _PATIENCE if self._waits else 0.0
        while not (has_it := self._lock()) and time.monotonic() < until:
            time.sleep(_PAUSE)
        if self._waits and not has_it:
            log.error("audit.file-held", path=str(self._path))
        self._waits = has_it
        try:
            yield
        finally:
            if has_it:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another writer has it, or the file system has no locks
            return False
        return True
