"""The agents of a test end with it."""

from collections.abc import AsyncIterator

import pytest

from tests.adapters.python.python_agents import made


@pytest.fixture(autouse=True)
async def _closed_agents() -> AsyncIterator[None]:
    yield
    while made:
        await made.pop().aclose()
