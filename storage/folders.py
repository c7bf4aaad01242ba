"""Folders for files that nobody needs when their process ends. Law: the folder of a process that was killed is removed by
the next one that makes a folder in that place; that of a living one never.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree

_LOCK = "lock"


@contextmanager
def own_folder(place: Path, purpose: str) -> Iterator[Path]:
    """A new folder in `place`, which only this user can read. The folders of one purpose have names of their own. Raises:
    OSError when it cannot be made."""
    prefix = f"a2a-gateway-{purpose}-{os.geteuid()}-"
    _remove_left(place, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    # The file has its name when it is locked.
    lock = os.open(folder / "new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "new").rename(folder / _LOCK)
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_left(place: Path, prefix: str) -> None:
    """The folders of processes that were killed: nobody holds their locks. One without a lock is being made or removed."""
    for folder in place.glob(f"{prefix}*"):
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
