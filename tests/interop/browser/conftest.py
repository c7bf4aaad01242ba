"""A browser and a gateway for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.interop.browser.tabs import Tab, chromium, tab
from tests.interop.browser.world import World, world


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as gateway:
        yield gateway


@pytest.fixture
async def opened(browser: Browser, gateway: World) -> AsyncIterator[Tab]:
    """A tab that has done nothing wrong at the end of the test."""
    async with tab(browser, gateway.url) as opened:
        yield opened
        assert opened.faults == []
