"""A ledger of a third party, with settings of its own: it keeps everything in a file of SQLite in its `folder`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import Field

from gateway.config.settings import LocalPath, Settings
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.leases import UnfinishedTurn
from gateway.ledger.port import Ledger, LedgerFactory
from storage.ledger import open_ledger
from storage.settings import SqliteSettings


class ShelfSettings(Settings):
    """A shelf of a library."""

    url: str = Field(description="shelf://USER:PASSWORD@LIBRARY")
    folder: LocalPath = Field(description="Where the books are.")
    open: bool = Field(True, description="Whether the library is open.")
    closes: bool = Field(False, description="Whether it closes before anybody has looked for anything.")


@asynccontextmanager
async def open_shelf(settings: ShelfSettings, auto_migrate: bool) -> AsyncGenerator[Any, None]:
    if not settings.open:
        raise LedgerUnavailable("the library is closed")
    async with open_ledger(SqliteSettings(url=f"sqlite:///{settings.folder}/books.db"), auto_migrate) as ledger:
        yield _Closed(ledger) if settings.closes else ledger


class _Closed:
    """A ledger in which nobody finds out what there was to do."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def unfinished_turns(self, now: int, holder: str) -> Sequence[UnfinishedTurn]:
        raise LedgerUnavailable("the library has closed")


def problem(settings: ShelfSettings) -> str | None:
    return None if settings.folder.is_dir() else "there is no such folder"


factory = LedgerFactory(settings=ShelfSettings, open=open_shelf, problem=problem)
without_url = LedgerFactory(settings=Settings, open=open_shelf)  # type: ignore[type-var, arg-type]
