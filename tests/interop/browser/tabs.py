"""Debian's Chromium, and tabs that note what they should not have done."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright

from tests.interop.peer_processes import absent

_NAMES = ("chromium", "chromium-browser", "google-chrome")
PICTURES = "A2A_GATEWAY_PICTURES"
"""The folder that pictures of pages are written to; none are without it."""

_SERIOUS = ("serious", "critical")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        absent("Chromium is not installed: run .ci/peers.sh as root on Debian")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Tab:
    """`faults` are lines of the console, errors of scripts, dialogs, and requests to other hosts."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda line: self.faults.append(f"console: {line.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", self._requested)
        self.page.on("dialog", self._dialog)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.faults.append(f"request: {request.url}")

    async def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    async def open(self, path: str) -> Page:
        await self.page.goto(self.url + path)
        return self.page

    async def text(self, selector: str = "main") -> str:
        return await self.page.inner_text(selector)

    async def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    async def picture(self, name: str) -> None:
        folder = os.environ.get(PICTURES)
        if folder:
            await self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)

    async def barriers(self) -> list[str]:
        """What axe finds serious."""
        found = await Axe().run(self.page)
        return [
            f"{one['id']}: {node['html'][:200]}"
            for one in found.response["violations"]
            if one["impact"] in _SERIOUS
            for node in one["nodes"][:3]
        ]


@asynccontextmanager
async def tab(
    browser: Browser,
    url: str,
    *,
    width: int = 1280,
    scheme: Literal["light", "dark"] = "light",
    bypass_csp: bool = False,
    scripts: bool = True,
) -> AsyncIterator[Tab]:
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        bypass_csp=bypass_csp,
        java_script_enabled=scripts,
    )
    try:
        page = await context.new_page()
        page.set_default_timeout(30_000)
        yield Tab(page, url)
    finally:
        await context.close()
