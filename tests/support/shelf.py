"""A ledger of a third party, with settings of its own: it keeps everything in a file of SQLite in its `folder`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pydantic import Field

from gateway.config.settings import LocalPath, Settings
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Ledger, LedgerFactory
from storage.ledger import open_ledger
from storage.settings import SqliteSettings


class ShelfSettings(Settings):
    """A shelf of a library."""

    url: str = Field(description="shelf://USER:PASSWORD@LIBRARY")
    folder: LocalPath = Field(description="Where the books are.")
    open: bool = Field(True, description="Whether the library is open.")


@asynccontextmanager
async def open_shelf(settings: ShelfSettings, auto_migrate: bool) -> AsyncGenerator[Ledger, None]:
    if not settings.open:
        raise LedgerUnavailable("the library is closed")
    async with open_ledger(SqliteSettings(url=f"sqlite:///{settings.folder}/books.db"), auto_migrate) as ledger:
        yield ledger


def problem(settings: ShelfSettings) -> str | None:
    return None if settings.folder.is_dir() else "there is no such folder"


factory = LedgerFactory(settings=ShelfSettings, open=open_shelf, problem=problem)
without_url = LedgerFactory(settings=Settings, open=open_shelf)  # type: ignore[type-var, arg-type]
