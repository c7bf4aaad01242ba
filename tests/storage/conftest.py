"""A ledger on a file of its own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.storage.conversation import Recorded, recorded


@pytest.fixture
async def database(tmp_path: Path) -> AsyncGenerator[Recorded, None]:
    async with recorded(tmp_path / "ledger.db") as database:
        yield database
