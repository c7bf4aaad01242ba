"""The core on a database of its own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.core import Core, running_core


@pytest.fixture
async def core(tmp_path: Path) -> AsyncGenerator[Core, None]:
    async with running_core(tmp_path / "ledger.db") as core:
        yield core
