"""A ledger that is gone when its process ends: a database file in a folder of its own. Law: the folder of a process that was
killed is removed by the next one that makes a folder; that of a living one never.
"""

import fcntl
import os
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Literal

from pydantic import Field

from gateway.config.settings import Settings
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Ledger, LedgerFactory
from storage.ledger import open_ledger
from storage.settings import SqliteSettings

_LOCK = "lock"


class TemporarySettings(Settings):
    """A database that is gone when the gateway ends, for tests and trials."""

    url: Literal["temporary"] = Field(description="temporary: nothing is kept.")


@asynccontextmanager
async def open_temporary(_: TemporarySettings, __: bool) -> AsyncGenerator[Ledger, None]:
    """As `open_ledger`, on an empty database, whose schema is always made."""
    with _folder() as folder:
        async with open_ledger(SqliteSettings(url=f"sqlite:///{folder / 'gateway.db'}"), True) as ledger:
            yield ledger


@contextmanager
def _folder() -> Iterator[Path]:
    """Raises: LedgerUnavailable."""
    place, prefix = Path(tempfile.gettempdir()), f"a2a-gateway-temporary-{os.geteuid()}-"
    _remove_left(place, prefix)
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        # The file has its name when it is locked.
        lock = os.open(folder / "new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "new").rename(folder / _LOCK)
    except OSError as error:
        raise LedgerUnavailable(f"no folder for a temporary database can be made in {str(place)!r}: {error}") from error
    try:
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


factory = LedgerFactory(settings=TemporarySettings, open=open_temporary, keeps=False)
