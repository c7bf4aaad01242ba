"""The playground in a browser."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from gateway.ui.foreign import visible
from tests.interop.browser.tabs import Tab, tab
from tests.interop.browser.world import World


async def say(page: Page, text: str) -> None:
    await page.fill("#message", text)
    await page.click("#submit")


async def test_an_answer_comes_as_a_stream_and_as_it_went_over_the_wire(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "Good morning")
    await expect(page.locator("#status")).to_have_text("The task is completed.")
    await expect(page.locator("#talk")).to_contain_text("Hello.")
    await page.click("#wire summary >> nth=0")
    raw = await opened.text("#wire")
    assert "curl -N -X POST" in raw
    assert '"statusUpdate"' in raw
    await opened.picture("playground-wire")
    await say(page, "And again")
    await expect(page.locator("#talk li.you")).to_have_count(2)
    await expect(page.locator("#status")).to_have_text("The task is completed.")


async def test_a_tool_call_shows_its_arguments_and_its_result(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "look for hotels")
    await expect(page.locator("#talk li.tool")).to_contain_text('look {"city":"Oslo"}')
    await expect(page.locator("#talk li.tool")).to_contain_text("three hotels in Oslo")
    await expect(page.locator("#talk")).to_contain_text("There are three.")


@pytest.mark.parametrize(("button", "outcome"), [("Allow", "succeeded"), ("Refuse", "rejected")])
async def test_a_call_waits_for_its_callers_decision(opened: Tab, button: str, outcome: str) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "book the Ritz")
    await expect(page.locator("#status")).to_have_text("The task waits for you.")
    await expect(page.locator("#questions legend")).to_have_text("May book.book run?")
    await opened.picture("playground-question")
    await page.click(f"#questions button:text-is('{button}')")
    await expect(page.locator("#talk li.tool")).to_contain_text(outcome)
    await expect(page.locator("#status")).to_have_text("The task is completed.")
    await expect(page.locator("#questions fieldset")).to_have_count(0)


async def test_a_tool_can_be_allowed_for_good_where_the_agent_is_set_to_that(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=inn")
    await say(page, "book the Ritz")
    await page.click("#questions button:text-is('Always allow')")
    await expect(page.locator("#status")).to_have_text("The task is completed.")
    await say(page, "book the Ritz")
    await expect(page.locator("#talk li.tool")).to_have_count(2)
    await expect(page.locator("#status")).to_have_text("The task is completed.")


async def test_nothing_is_allowed_for_good_where_the_agent_asks_every_time(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "book the Ritz")
    await expect(page.locator("#questions button")).to_have_text(["Allow", "Refuse"])


async def test_a_question_is_there_again_after_a_reload(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "book the Ritz")
    await expect(page.locator("#questions legend")).to_be_visible()
    asked = await opened.text("#talk li.tool")
    assert asked.endswith("awaiting-approval")
    await page.reload()
    await expect(page.locator("#questions legend")).to_have_text("May book.book run?")
    assert await opened.text("#talk li.tool") == asked
    await page.click("#questions button:text-is('Allow')")
    await expect(page.locator("#status")).to_have_text("The task is completed.")


async def test_a_question_that_is_answered_in_another_tab_is_no_question_any_more(
    browser: Browser, gateway: World
) -> None:
    async with tab(browser, gateway.url) as one, tab(browser, gateway.url) as two:
        page = await one.open("/ui/playground?agent=hotel")
        await say(page, "book the Ritz")
        await expect(page.locator("#questions")).to_contain_text("It can be answered until 2")
        other = await two.open("/ui/playground" + page.url.partition("/ui/playground")[2])
        await other.click("#questions button:text-is('Allow')")
        for each in (page, other):
            await expect(each.locator("#status")).to_have_text("The task is completed.")
            await expect(each.locator("#questions fieldset")).to_have_count(0)
            await expect(each.locator("#talk li.tool")).to_contain_text("succeeded")
        assert one.faults == two.faults == []


async def test_a_decision_that_comes_too_late_shows_what_has_become_of_the_task(
    browser: Browser, gateway: World
) -> None:
    async with tab(browser, gateway.url) as one, tab(browser, gateway.url) as two:
        page = await one.open("/ui/playground?agent=hotel")
        await page.route("**/*:subscribe", lambda route: route.abort())
        await say(page, "book the Ritz")
        await expect(page.locator("#questions legend")).to_be_visible()
        other = await two.open("/ui/playground" + page.url.partition("/ui/playground")[2])
        await other.click("#questions button:text-is('Refuse')")
        await expect(other.locator("#status")).to_have_text("The task is completed.")
        await page.click("#questions button:text-is('Allow')")
        await expect(page.locator("#talk li.fault")).to_have_count(1)
        await expect(page.locator("#talk li.tool")).to_contain_text("rejected")
        await expect(page.locator("#status")).to_have_text("The task is completed.")
        await expect(page.locator("#questions fieldset")).to_have_count(0)
        await expect(page.locator("#talk li.you")).to_have_text([re.compile("book"), re.compile('"approved":false')])


async def test_what_is_said_after_a_tool_stands_below_it(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "first and last")
    await expect(page.locator("#status")).to_have_text("The task is completed.")
    rows = page.locator("#talk li")
    for _ in range(2):
        await expect(rows.last).to_contain_text("There are three.")
        await page.reload()
        await expect(page.locator("#status")).to_have_text("The task is completed.")


async def test_text_on_either_side_of_a_tool_has_a_bubble_each(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "first and last")
    await expect(page.locator("#status")).to_have_text("The task is completed.")
    kinds = [await each.get_attribute("class") for each in await page.locator("#talk li").all()]
    assert kinds == ["you", "", "tool", ""]
    await expect(page.locator("#talk li").nth(1)).to_contain_text("I look.")
    await expect(page.locator("#talk li").nth(3)).to_contain_text("There are three.")


async def test_a_tool_at_work_is_not_told_as_waiting_after_a_reload(opened: Tab, gateway: World) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "take your time")
    await expect(page.locator("#talk li.tool")).to_contain_text("executing")
    await page.reload()
    await expect(page.locator("#talk li.tool")).to_contain_text("requested or running")
    gateway.ring()
    await expect(page.locator("#talk li.tool")).to_contain_text("succeeded")
    await expect(page.locator("#status")).to_have_text("The task is completed.")


async def test_the_focus_goes_to_a_question_and_back(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "book the Ritz")
    await expect(page.get_by_role("group", name="Questions")).to_be_focused()
    await page.click("#questions button:text-is('Allow')")
    await expect(page.locator("#status")).to_have_text("The task is completed.")
    await expect(page.locator("#message")).to_be_focused()


async def test_a_message_that_is_refused_is_kept_with_its_files(
    browser: Browser, gateway: World, tmp_path: Path
) -> None:
    given = tmp_path / "notes.txt"
    given.write_text("0123456789", encoding="utf-8")
    async with tab(browser, gateway.url) as opened:
        page = await opened.open("/ui/playground?agent=file")
        await page.click("summary:text-is('Tools of yours')")
        await page.fill("#tools", '[{"name": "bad name!"}]')
        await page.set_input_files("#files", given)
        await say(page, "hi")
        await expect(page.locator("#talk li.fault")).to_contain_text("Invalid parameters")
        await expect(page.locator("#talk li.you")).to_have_count(0)
        await page.fill("#tools", "")
        await page.click("#submit")
        await expect(page.locator("#talk")).to_contain_text("notes.txt has 10 bytes.")
        await expect(page.locator("#talk li.you")).to_contain_text("hi")
        await expect(page.locator("#message")).to_have_value("")


async def test_a_stream_that_cannot_be_resumed_for_a_minute_is_resumed_on_request(
    browser: Browser, gateway: World
) -> None:
    async with tab(browser, gateway.url) as opened:
        page = await opened.open("/ui/playground?agent=hotel")
        await page.clock.install()
        await say(page, "be slow")
        await expect(page.locator("#talk")).to_contain_text("The first part.")
        await page.route("**/ui/wire/**", lambda route: route.abort())
        await page.reload()
        await expect(page.locator("#again")).to_be_visible()
        await page.unroute("**/ui/wire/**")
        await page.route("**/*:subscribe", lambda route: route.abort())
        await page.click("#again")
        await expect(page.locator("#status")).to_have_text("The stream broke off; it is resumed.")
        async with asyncio.timeout(20):
            while await page.locator("#again").is_hidden():
                await page.clock.run_for(30_000)
        await expect(page.locator("#status")).to_have_text("The stream could not be resumed.")
        await page.unroute("**/*:subscribe")
        await page.click("#again")
        gateway.go.set()
        await expect(page.locator("#talk")).to_contain_text("The second part.")
        await expect(page.locator("#again")).to_be_hidden()


async def test_a_tool_of_the_client_is_answered_by_hand(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await page.click("summary:text-is('Tools of yours')")
    await page.fill(
        "#tools", '[{"name": "camera", "description": "Takes a picture.", "parameters": {"type": "object"}}]'
    )
    await say(page, "use the camera")
    await expect(page.locator("#questions legend")).to_have_text("Your tool camera is called")
    await page.fill("#questions textarea", "no json")
    await page.click("#questions button")
    await expect(page.locator("#questions")).to_contain_text("This is no JSON.")
    await page.fill("#questions textarea", '{"picture": "a cat"}')
    await page.click("#questions button")
    await expect(page.locator("#talk")).to_contain_text("A nice picture.")


async def test_a_file_goes_there_and_back(opened: Tab, tmp_path: Path) -> None:
    given = tmp_path / "notes.txt"
    given.write_text("0123456789", encoding="utf-8")
    page = await opened.open("/ui/playground?agent=file")
    await page.set_input_files("#files", given)
    await page.click("#submit")
    await expect(page.locator("#talk")).to_contain_text("notes.txt has 10 bytes.")
    async with page.expect_download() as download:
        await page.click("#talk a:text-matches('back.txt')")
    path = await (await download.value).path()
    assert path.read_bytes() == b"0123456789"
    await expect(page.locator("#talk a")).to_have_text(["notes.txt (10 bytes)", "back.txt (10 bytes)"])
    await page.reload()
    await expect(page.locator("#talk a")).to_have_text(["notes.txt (10 bytes)", "back.txt (10 bytes)"])


async def test_a_task_is_cancelled(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "be slow")
    await expect(page.locator("#talk")).to_contain_text("The first part.")
    await page.click("#cancel")
    await expect(page.locator("#status")).to_have_text("The task is canceled.")
    await expect(page.locator("#cancel")).to_be_hidden()


async def test_a_stream_goes_on_after_a_reload_in_its_middle(opened: Tab, gateway: World) -> None:
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, "be slow")
    await expect(page.locator("#talk")).to_contain_text("The first part.")
    await page.reload()
    await expect(page.locator("#talk")).to_contain_text("The first part.")
    gateway.go.set()
    await expect(page.locator("#talk")).to_contain_text("The first part. The second part.")
    await expect(page.locator("#status")).to_have_text("The task is completed.")


async def test_what_the_gateway_refuses_is_said(browser: Browser, gateway: World) -> None:
    async with tab(browser, gateway.url) as opened:
        page = await opened.open("/ui/playground?agent=hotel")
        await page.click("summary:text-is('Tools of yours')")
        await page.fill("#tools", '[{"name": "bad name!"}]')
        await say(page, "hi")
        await expect(page.locator("#talk li.fault")).to_contain_text("Invalid parameters")
        await expect(page.locator("#submit")).to_be_enabled()


async def test_two_browsers_see_one_task(browser: Browser, gateway: World) -> None:
    async with tab(browser, gateway.url) as one, tab(browser, gateway.url) as two:
        page = await one.open("/ui/playground?agent=hotel")
        await say(page, "be slow")
        await expect(page.locator("#talk")).to_contain_text("The first part.")
        other = await two.open("/ui/playground" + page.url.partition("/ui/playground")[2])
        await expect(other.locator("#talk")).to_contain_text("The first part.")
        gateway.go.set()
        for each in (page, other):
            await expect(each.locator("#talk")).to_contain_text("The second part.")
        assert one.faults == two.faults == []


async def test_hostile_words_do_nothing(opened: Tab) -> None:
    page = await opened.open("/ui/playground?agent=hotel&context=%3Cscript%3E")
    await page.fill("#context", "")
    await say(page, "be evil")
    await expect(page.locator("#status")).to_have_text("The task is completed.")
    assert await page.locator("#talk script, #talk img, #talk p").count() == 0
    assert "⟨U+202E⟩" in await opened.text("#talk")
    assert "<script>alert(1)</script>" in await opened.text("#talk")


UNSEEN = (
    0x34F,
    0x600,
    0x61C,
    0x70F,
    0x115F,
    0x1160,
    0x17B4,
    0x180E,
    0x2028,
    0x206A,
    0x3164,
    0xF8FF,
    0xFE00,
    0xFEFF,
    0xFFA0,
)
UNSEEN_BEYOND = (0xFFF9, 0xFFFE, 0x1343F, 0x1BCA0, 0x1D173, 0xE0001, 0xE0041, 0xE007F, 0xE0100, 0xF0000)


async def test_what_is_not_seen_is_named_as_on_other_pages(opened: Tab) -> None:
    said = "".join(f"{chr(code)}a" for code in (*UNSEEN, *UNSEEN_BEYOND)) + "Z" + "\u0301" * 20 + "é 👍🏽 שלום"
    page = await opened.open("/ui/playground?agent=hotel")
    await say(page, said)
    await expect(page.locator("#talk li.you")).to_contain_text("U+034F")
    assert visible(said) in await opened.text("#talk li.you")
