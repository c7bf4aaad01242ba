"""A ledger on a file of its own."""

import sqlite3
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from storage.read.pool import Readers
from tests.storage.conversation import Recorded, recorded
from tests.storage.memory import Forgetful


@pytest.fixture
async def database(tmp_path: Path) -> AsyncGenerator[Recorded, None]:
    async with recorded(tmp_path / "ledger.db") as database:
        yield database


@pytest.fixture
async def readers(path: Path) -> AsyncGenerator[Readers, None]:
    """Readers of the file that the test has made."""
    readers = Readers()
    await readers.open(str(path), 50)
    yield readers
    await readers.close()


@pytest.fixture
def short_of_memory_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements for which connections that are opened from now on have no memory, each once."""
    statements: list[str] = []
    monkeypatch.setattr(Forgetful, "short_of_memory_for", statements)
    forgetful: Any = partial(sqlite3.connect, factory=Forgetful)
    monkeypatch.setattr(sqlite3, "connect", forgetful)
    return statements
