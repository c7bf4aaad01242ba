"""A ledger that is gone when its process ends: a database file in a folder of its own. Law: as `storage.folders`."""

import tempfile
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from gateway.config.settings import Settings
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Ledger, LedgerFactory
from storage.folders import own_folder
from storage.ledger import open_ledger
from storage.settings import SqliteSettings


class TemporarySettings(Settings):
    """A database that is gone when the gateway ends, for tests and trials."""

    url: Literal["temporary"] = Field(description="temporary: nothing is kept.")


@asynccontextmanager
async def open_temporary(_: TemporarySettings, __: bool) -> AsyncGenerator[Ledger, None]:
    """As `open_ledger`, on an empty database, whose schema is always made."""
    place = Path(tempfile.gettempdir())
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(own_folder(place, "temporary"))
        except OSError as error:
            raise LedgerUnavailable(
                f"no folder for a temporary database can be made in {str(place)!r}: {error}"
            ) from error
        async with open_ledger(SqliteSettings(url=f"sqlite:///{folder / 'gateway.db'}"), True) as ledger:
            yield ledger


factory = LedgerFactory(settings=TemporarySettings, open=open_temporary, keeps=False)
