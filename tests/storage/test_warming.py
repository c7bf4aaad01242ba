"""What the system has dropped of the write-ahead log is asked for again."""

import os
import time
from pathlib import Path

import pytest

from storage.warming import WarmLog
from tests.gateway.core import BOUND

_PAGE = 4096


def _is_in_memory(log: Path) -> bool:
    """All of it: what has to be read from the disk is not waited for."""
    fd = os.open(log, os.O_RDONLY)
    try:
        for offset in range(0, log.stat().st_size, _PAGE):
            os.preadv(fd, [bytearray(_PAGE)], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log that the system has dropped from memory."""
    log = tmp_path / "gateway.db-wal"
    log.write_bytes(os.urandom(64 * _PAGE))
    _drop(log)
    return log


def _drop(log: Path) -> None:
    fd = os.open(log, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if _is_in_memory(log):
            pytest.skip("this file system drops nothing")
    except (AttributeError, OSError) as error:
        pytest.skip(f"this system does not say what is in memory: {error}")
    finally:
        os.close(fd)


def _comes_back(log: Path) -> None:
    end = time.monotonic() + BOUND
    while not _is_in_memory(log):
        assert time.monotonic() < end


def test_what_the_system_has_dropped_of_the_log_is_there_again(log: Path) -> None:
    WarmLog(str(log).removesuffix("-wal")).keep()
    _comes_back(log)


def test_it_is_asked_for_only_once_in_a_while(log: Path) -> None:
    warm = WarmLog(str(log).removesuffix("-wal"), iter([100.0, 100.9, 101.0]).__next__)
    warm.keep()
    _comes_back(log)
    _drop(log)
    warm.keep()
    assert not _is_in_memory(log)
    warm.keep()
    _comes_back(log)


def test_a_log_that_is_not_there_is_no_trouble(tmp_path: Path) -> None:
    WarmLog(str(tmp_path / "gateway.db")).keep()
    assert list(tmp_path.iterdir()) == []
