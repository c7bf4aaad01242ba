"""A ledger on a file of its own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from storage.readers import Readers
from tests.storage.conversation import Recorded, recorded


@pytest.fixture
async def database(tmp_path: Path) -> AsyncGenerator[Recorded, None]:
    async with recorded(tmp_path / "ledger.db") as database:
        yield database


@pytest.fixture
async def readers(path: Path) -> AsyncGenerator[Readers, None]:
    """Of the file that the test has made."""
    readers = Readers()
    await readers.open(str(path), 50)
    yield readers
    await readers.close()
