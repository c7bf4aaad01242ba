"""The pictures of docs/pictures, which `make pictures` takes anew."""

import os
from pathlib import Path

from playwright.async_api import expect

from gateway.ledger.admin.contexts import ContextFilter
from tests.a2a_client import A2A, a2a_http
from tests.interop.browser.tabs import PICTURES, Tab
from tests.interop.browser.world import World

DOCS = Path(__file__).parents[3] / "docs"


async def pages(gateway: World) -> dict[str, str]:
    """The addresses of the pages that have a picture, by its name, of a gateway with a few conversations."""
    async with a2a_http(gateway.url) as http:
        hotel, down = A2A(http, "hotel"), A2A(http, "down")
        for number in range(2):
            await down.send("Is anybody there?", f"down-{number}")
        await A2A(http, "echo").send("How many words are these?", "words")
        await hotel.send("Please book the Ritz for Ada.", "ada-ritz")
        await hotel.send("Hello, my name is Ada.", "ada-oslo")
        task = await hotel.send("Please look for hotels in Oslo.", "ada-oslo")
        await hotel.send("Thank you!", "ada-oslo")
    admin = gateway.local.gateway.runner.runtime.ledger.admin
    contexts = (await admin.contexts("", ContextFilter())).contexts
    context = next(each.id for each in contexts if each.public_id == "ada-oslo")
    return {
        "overview": "/ui/",
        "context": f"/ui/contexts/{context}",
        "timeline": f"/ui/tasks/{task['id']}",
    }


async def test_every_picture_of_the_documentation_is_of_a_page_as_it_is(opened: Tab, gateway: World) -> None:
    shown = await pages(gateway)
    await opened.page.set_viewport_size({"width": 1280, "height": 480})  # a picture is no shorter than the window
    for name, address in shown.items():
        page = await opened.open(address)
        await expect(page.locator("main h1")).to_be_visible()
        await opened.picture(name)
    await _play(opened)
    await opened.picture("playground")
    assert taken() == {*shown, "playground"}


def taken() -> set[str]:
    return {path.stem for path in Path(os.environ.get(PICTURES, DOCS / "pictures")).glob("*.png")}


async def _play(tab: Tab) -> None:
    page = await tab.open("/ui/playground?agent=hotel")
    await page.fill("#message", "Please book the Ritz for Ada.")
    await page.click("#submit")
    await expect(page.locator("#questions legend")).to_be_visible()
