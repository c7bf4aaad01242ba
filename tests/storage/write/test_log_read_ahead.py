"""Pages of the write-ahead log that the system has dropped are loaded again."""

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.write.writer import LogReadAhead
from tests.support.core import BOUND

_PAGES = 1024


def _pages_in_memory(log: Path) -> int:
    """How many pages of the file are in memory. Any other way to look would load them."""
    known = (ctypes.c_ubyte * _PAGES)()
    fd = os.open(log, os.O_RDONLY)
    try:
        with mmap.mmap(fd, _PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE) as pages:
            begin = ctypes.c_char.from_buffer(pages)
            failed = ctypes.CDLL(None).mincore(
                ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_size_t(len(pages)), known
            )
            del begin
    finally:
        os.close(fd)
    assert not failed
    return sum(page & 1 for page in known)


@pytest.fixture
def log(disk_path: Path) -> Path:
    """A log that the system has dropped from memory."""
    if sys.platform != "linux":
        pytest.skip("other systems do not drop it when told to")
    log = disk_path / "gateway.db-wal"
    log.write_bytes(os.urandom(_PAGES * mmap.PAGESIZE))
    _drop(log)
    return log


def _drop(log: Path) -> None:
    fd = os.open(log, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    if _pages_in_memory(log):
        pytest.skip("this file system drops nothing")


def _comes_back(log: Path, again: Callable[[], None] = lambda: None, pages: int = 1) -> None:
    """So many pages. `again` asks once more, because the system drops pages anew where memory is short."""
    end = time.monotonic() + BOUND
    while _pages_in_memory(log) < pages:
        assert time.monotonic() < end
        again()


def test_what_the_system_has_dropped_of_the_log_is_there_again(log: Path) -> None:
    def request() -> None:
        LogReadAhead(str(log).removesuffix("-wal")).request()

    request()
    _comes_back(log, request, _PAGES)


def test_it_is_asked_for_only_once_in_a_while(log: Path) -> None:
    warm = LogReadAhead(str(log).removesuffix("-wal"), iter([100.0, 100.9, 101.0]).__next__)
    warm.request()
    _comes_back(log)
    _drop(log)
    warm.request()
    assert _pages_in_memory(log) == 0
    warm.request()
    _comes_back(log)


def test_it_is_the_log_beside_the_file_that_a_link_names(log: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "linked.db"
    link.parent.mkdir()
    link.symlink_to(str(log).removesuffix("-wal"))
    LogReadAhead(str(link)).request()
    _comes_back(log)


def test_a_log_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    LogReadAhead(str(tmp_path / "gateway.db")).request()
    assert list(tmp_path.iterdir()) == []
