"""The core on a database of its own."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import structlog
from structlog._config import BoundLoggerLazyProxy

from tests.gateway.core import Core, running_core


@pytest.fixture(autouse=True)
def _fresh_loggers() -> None:
    """A logger keeps the settings of its first use: what a command set up in this process must not hold for later tests."""
    structlog.reset_defaults()
    for name, module in sys.modules.copy().items():  # at once: threads import as well
        logger = vars(module).get("log") if name.startswith("gateway") else None
        if isinstance(logger, BoundLoggerLazyProxy):
            vars(logger).pop("bind", None)


@pytest.fixture
async def core(tmp_path: Path) -> AsyncGenerator[Core, None]:
    async with running_core(tmp_path / "ledger.db") as core:
        yield core
