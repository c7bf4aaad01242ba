"""The pages in a browser: what they load, how they look, and what hostile data does there."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, expect

from gateway.ledger.admin.contexts import ContextFilter
from tests.a2a_client import A2A, a2a_http
from tests.gateway.ui.visitor import make_key
from tests.interop.browser.tabs import Tab, tab
from tests.interop.browser.world import EVIL, HUGE, World, world

WHOLE = """[
  document.querySelector('main').innerText,
  ...[...document.querySelectorAll('main a')].map((link) => `${link.textContent} ${link.href}`),
]"""
ROWS = "[...document.querySelectorAll('#rows > li')].map((row) => row.id)"
FOREIGN = "[...document.querySelectorAll('main script, main img, main iframe, main [onerror], main [hx-post]')].length"

DOWN = 2
"""Conversations with the backend that is down, whose tries are enough for the gateway to leave it alone."""


@pytest.fixture
async def hotel(gateway: World) -> AsyncIterator[A2A]:
    async with a2a_http(gateway.url) as http:
        yield A2A(http, "hotel")


async def filled(hotel: A2A, gateway: World) -> dict[str, str]:
    """The addresses of all pages, by name, of a gateway that holds something for each."""
    done = await hotel.send("look for hotels", "c-1")
    waiting = await hotel.send("book the Ritz", "c-2")
    failed = await hotel.send("fail", "c-3")
    await hotel.send(EVIL + " be evil", "c-4 " + "x" * 200)
    async with a2a_http(gateway.url) as http:
        await A2A(http, "echo").send("How many words are these?", "c-5")
        await asyncio.gather(*[A2A(http, "down").send("hi", f"d-{number}") for number in range(DOWN)])
    await make_key(gateway.local, "a key")
    ledger = gateway.local.gateway.runner.runtime.ledger
    contexts = (await ledger.admin.contexts("", ContextFilter())).contexts
    row = next(each.id for each in contexts if each.public_id == "c-1")
    task = f"/ui/tasks/{done['id']}"
    return {
        "overview": "/ui/",
        "agent": "/ui/agents/hotel",
        "agent-down": "/ui/agents/down",
        "contexts": "/ui/contexts",
        "context": f"/ui/contexts/{row}",
        "next": f"/ui/contexts/{row}/next?agent=hotel",
        "delete": f"/ui/contexts/{row}/delete",
        "task": task,
        "task-failed": f"/ui/tasks/{failed['id']}",
        "task-waiting": f"/ui/tasks/{waiting['id']}",
        "events": f"{task}/events",
        "deliveries": "/ui/deliveries",
        "deletions": "/ui/deliveries?show=deletions",
        "keys": "/ui/keys",
        "key-new": "/ui/keys/new",
        "import": "/ui/import",
        "adopt": "/ui/adopt",
        "places": "/ui/go?id=nothing",
        "playground": "/ui/playground?agent=hotel",
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
async def test_every_page_fits_and_nobody_is_kept_out(
    browser: Browser, gateway: World, hotel: A2A, width: int, scheme: Literal["light", "dark"]
) -> None:
    pages = await filled(hotel, gateway)
    async with (
        tab(browser, gateway.url, width=width, scheme=scheme) as strict,
        tab(browser, gateway.url, width=width, scheme=scheme, bypass_csp=True) as lax,
    ):
        for name, address in pages.items():
            await strict.open(address)
            assert await strict.overflow() == 0, name
            await strict.picture(f"{name}-{width}-{scheme}")
            await lax.open(address)
            assert await lax.barriers() == [], name
        # A page that is not there says so in the console, too.
        assert [fault for fault in strict.faults if "404" not in fault] == []


async def test_hostile_words_in_every_column_do_nothing(opened: Tab, gateway: World, hotel: A2A) -> None:
    pages = await filled(hotel, gateway)
    evil = await hotel.send(EVIL * 1000 + " be evil", "c-9")
    pages |= {"evil": f"/ui/tasks/{evil['id']}", "evil-events": f"/ui/tasks/{evil['id']}/events"}
    del pages["places"]
    for name, address in pages.items():
        page = await opened.open(address)
        for summary in await page.locator("main summary").all():
            if await summary.is_visible():
                await summary.click()
        await opened.picture(f"{name}-opened")
        assert await page.evaluate(FOREIGN) == 0, name


async def test_a_million_hostile_characters_in_each_field_do_nothing_and_pages_stay_small(
    browser: Browser, gateway: World, hotel: A2A
) -> None:
    await make_key(gateway.local, "k" + HUGE[:200])
    said = await hotel.send(HUGE + " huge", "c-1")
    failed = await hotel.send("break " + HUGE, "c-2 " + "<img src=x onerror=alert(5)>" * 8)
    async with a2a_http(gateway.url) as http:
        await A2A(http, "echo").send(HUGE, "c-3")
    assert said["status"]["state"] == "TASK_STATE_COMPLETED"
    ledger = gateway.local.gateway.runner.runtime.ledger
    rows = [each.id for each in (await ledger.admin.contexts("", ContextFilter())).contexts]
    pages = ["/ui/", "/ui/agents/hotel", "/ui/contexts", "/ui/keys", f"/ui/go?id={quote(HUGE[:4000])}"]
    pages += [f"/ui/contexts?text={quote(HUGE[:200])}", f"/ui/contexts/{quote(HUGE[:1000], safe='')}"]
    pages += [address for row in rows for address in (f"/ui/contexts/{row}", f"/ui/contexts/{row}/next?agent=hotel")]
    pages += [f"/ui/tasks/{task['id']}{rest}" for task in (said, failed) for rest in ("", "?show=tools", "/events")]
    async with tab(browser, gateway.url, width=400) as opened:
        for address in pages:
            page = await opened.open(address)
            assert len(await page.content()) < 250_000, address[:100]
            for summary in await page.locator("main summary").all():
                if await summary.is_visible():
                    await summary.click()
            await page.wait_for_load_state("networkidle")
            assert await page.evaluate(FOREIGN) == 0, address[:100]
            assert await opened.overflow() == 0, address[:100]
        assert [fault for fault in opened.faults if "404" not in fault and "400" not in fault] == []


async def test_who_may_answer_is_said_as_long_as_a_task_waits(opened: Tab, hotel: A2A) -> None:
    task = await hotel.send("book the Ritz", "c-1")
    page = await opened.open(f"/ui/tasks/{task['id']}")
    await expect(page.locator("#hint")).to_have_text(
        "You are its caller: answer in the playground, or cancel the task."
    )
    await expect(page.locator("#rows")).to_contain_text("s so far")
    cancelling = await page.context.new_page()
    await cancelling.goto(page.url)
    await cancelling.click("a.danger")
    await cancelling.click("button.danger")
    await expect(page.locator("#state")).to_have_text("cancelled")
    await expect(page.locator("#hint")).to_be_hidden()


async def test_only_its_caller_can_answer_a_question(browser: Browser, tmp_path: Path) -> None:
    settings = "auth: {mode: any_of, api_keys: {enabled: true}}"
    async with world(tmp_path, settings) as gateway, tab(browser, gateway.url) as opened:
        async with a2a_http(gateway.url) as http:
            http.headers["authorization"] = f"Bearer {await make_key(gateway.local, 'ada', admin=False)}"
            task = await A2A(http, "hotel").send("book the Ritz", "c-1")
        page = await opened.open(f"/ui/tasks/{task['id']}")
        await page.fill("input[name=key]", await make_key(gateway.local))
        await page.click("button:text-is('Log in')")
        await expect(page.locator("#hint")).to_have_text("Only its caller can answer. You can cancel the task.")


async def test_pages_are_whole_without_scripts(browser: Browser, gateway: World, hotel: A2A) -> None:
    pages = await filled(hotel, gateway)
    async with tab(browser, gateway.url, scripts=False) as plain:
        for name in ("overview", "contexts", "context", "task", "events", "keys"):
            await plain.open(pages[name])
            assert len(await plain.text()) > 100, name
        await plain.open(pages["delete"])
        await plain.page.click("button:text-is('Delete')")
        assert plain.page.url.endswith("/delete")


async def test_a_task_is_live_and_what_is_open_stays_open(opened: Tab, gateway: World, hotel: A2A) -> None:
    async with hotel.stream("be slow", "c-1") as stream:
        [first, *_] = await stream.read(2)
        task = first.event["task"]["id"]
        page = await opened.open(f"/ui/tasks/{task}")
        await expect(page.locator("#live")).to_be_visible()
        await page.click("li.row:has-text('Message') summary >> nth=0")
        await expect(page.locator("li.row:has-text('Message') dl").first).to_be_visible()
        gateway.go.set()
        await stream.rest()
        await expect(page.locator("#state")).to_have_text("completed")
        await expect(page.locator("#sentence")).to_have_text("It has completed.")
        await expect(page.locator("li.row:has-text('Message') dl").first).to_be_visible()
        await expect(page.locator("#live")).to_be_hidden()
        assert await page.evaluate("document.activeElement.tagName") == "SUMMARY"


async def test_the_rows_of_a_live_task_stand_as_on_its_page_that_is_loaded_anew(
    opened: Tab, gateway: World, hotel: A2A
) -> None:
    async with hotel.stream("grow", "c-1") as stream:
        [first, *_] = await stream.read(2)
        page = await opened.open(f"/ui/tasks/{first.event['task']['id']}")
        await expect(page.locator("li[id^=tool-]")).to_have_count(15)
        gateway.go.set()
        await stream.rest()
        await expect(page.locator("#state")).to_have_text("completed")
        # Over twenty like rows are one.
        await expect(page.locator("li[id^=fold-]")).to_have_count(1)
        live = await page.evaluate(ROWS)
        await page.reload()
        assert live == await page.evaluate(ROWS)


@pytest.mark.parametrize("end", ["completed", "cancelled"])
async def test_a_page_of_a_task_that_has_ended_is_as_one_that_is_loaded_anew(
    opened: Tab, gateway: World, hotel: A2A, end: str
) -> None:
    async with hotel.stream("grow" if end == "completed" else "be slow", "c-1") as stream:
        [first, *_] = await stream.read(2)
        task = first.event["task"]["id"]
        page = await opened.open(f"/ui/tasks/{task}")
        await expect(page.locator("#live")).to_be_visible()
        await expect(page.locator("main a:text-is('Cancel…')")).to_be_visible()
        await page.focus("main a:text-matches('What the client saw')")
        if end == "completed":
            gateway.go.set()
        else:
            await hotel.call("CancelTask", id=task)
        await stream.rest()
        await expect(page.locator("#state")).to_have_text(end)
        await expect(page.locator("#live")).to_be_hidden()
        await expect(page.locator("main a:text-is('Cancel…')")).to_have_count(0)
        assert (await page.evaluate("document.activeElement.textContent")).startswith("What the client saw")
        live = await page.evaluate(WHOLE)
        await page.reload()
        assert live == await page.evaluate(WHOLE)


async def test_the_next_page_opens_beside_six_live_ones(browser: Browser, gateway: World, hotel: A2A) -> None:
    async with hotel.stream("be slow", "c-1") as stream:
        [first, *_] = await stream.read(2)
        task = first.event["task"]["id"]
        async with tab(browser, gateway.url) as opened:
            pages = [await opened.page.context.new_page() for _ in range(6)]
            for page in pages:
                await page.goto(f"{gateway.url}/ui/tasks/{task}")
            await opened.open("/ui/")
            assert "Agents" in await opened.text()
        gateway.go.set()
        await stream.rest()


async def test_keys_of_the_keyboard(opened: Tab, gateway: World, hotel: A2A) -> None:
    await hotel.send("hi", "c-1")
    page = await opened.open("/ui/contexts")
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.id") == "go"
    await page.focus("[data-keys]")
    await page.keyboard.press("j")
    await expect(page.locator("tbody tr[aria-selected=true]")).to_have_count(1)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/ui/contexts/*")


async def test_a_session_from_the_login_to_a_revoked_key(browser: Browser, tmp_path: Path) -> None:
    settings = "auth: {mode: any_of, api_keys: {enabled: true}}"
    async with world(tmp_path, settings) as gateway, tab(browser, gateway.url) as opened:
        key = await make_key(gateway.local)
        page = await opened.open("/ui/keys")
        assert await opened.barriers() == []
        await opened.picture("login")
        await page.fill("input[name=key]", key)
        await page.click("button:text-is('Log in')")
        await page.wait_for_url("**/ui/keys")
        elsewhere = await page.context.new_page()
        await elsewhere.set_content(f"<a href='{gateway.url}/ui/keys'>a link in a chat</a>")
        await elsewhere.click("a")
        await expect(elsewhere.locator("h1")).to_have_text("Keys")
        await page.click("a:text-is('Revoke…')")
        assert "It is the key of this session" in await opened.text()
        await page.click("button:text-is('Revoke')")
        async with asyncio.timeout(60):
            while not await page.locator("input[name=key]").count():
                await page.goto(f"{gateway.url}/ui/")
