"""The core on a database of its own."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.invariants import violations
from tests.running import start_local
from tests.support.core import Core, running_core

__all__ = ["start_local"]

_CHECKED = frozenset(
    {"test_approvals", "test_breaker", "test_handled_calls", "test_retries", "test_static_handles", "test_tool_loop"}
)
"""Modules whose tests neither damage their ledger nor let parts of it expire."""


@pytest.fixture
async def core(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Core, None]:
    async with running_core(tmp_path / "ledger.db") as core:
        yield core
        if request.path.stem in _CHECKED:
            assert violations(core.path, settled=False) == []
