"""Each page shows what the ledger holds."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.a2a_client import A2A, a2a_http
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Say, in_rounds
from tests.gateway.ui.visitor import Visitor, make_key, states_in_headings, visiting
from tests.running import Local, StartLocal

AGENTS = """
echo: {type: python, ref: "gateway.cli.demo.agent:reply", default: true}
broken: {type: python, ref: "tests.gateway.ui.agents:fails"}
asking: {type: python, ref: "tests.gateway.ui.agents:asks"}
"""
EVIL = "<script>alert(1)</script> \u202e \0".replace("\0", "")


@pytest.fixture
async def gateway(start_local: StartLocal) -> Local:
    return await start_local(AGENTS)


@pytest.fixture
async def visitor(gateway: Local) -> AsyncIterator[Visitor]:
    async with visiting(gateway) as visitor:
        yield visitor


@pytest.fixture
async def echo(gateway: Local) -> AsyncIterator[A2A]:
    async with a2a_http(gateway.url) as http:
        yield A2A(http, "echo")


def links(visitor: Visitor, beginning: str) -> list[str]:
    """The addresses on the page that was opened last."""
    found = re.findall(r'href="([^"]*)"', visitor.html)
    return [address.replace("&amp;", "&") for address in found if address.startswith(beginning)]


async def test_an_empty_gateway_says_how_to_fill_it(visitor: Visitor) -> None:
    assert "Nothing failed in the last hour, nothing waits." in await visitor.open("/ui/")
    assert "The first message to an agent begins one" in await visitor.open("/ui/contexts")
    assert "Clients ask for push notifications" in await visitor.open("/ui/deliveries")
    assert "None was given up" in await visitor.open("/ui/deliveries?show=deletions")
    assert "to be delivered (0) stuck (0) deletions at backends (0)" in await visitor.open("/ui/deliveries")
    assert "Nobody is asked for a key" in await visitor.open("/ui/keys")


async def test_the_overview_says_how_the_storage_stands(visitor: Visitor, gateway: Local) -> None:
    assert "storage ok" in await visitor.open("/ui/")
    gateway.database.unlink()
    page = await visitor.open("/ui/")
    assert "storage removed" in page
    assert "The storage does not work as it should: removed." in page


async def test_a_conversation_is_found_from_the_list_to_its_events(visitor: Visitor, echo: A2A) -> None:
    task = await echo.send("How many words are these?", "c-1")
    page = await visitor.open("/ui/contexts?agent=echo&principal=anonymous&text=many+words")
    assert "How many words are these?" in page
    [context] = set(links(visitor, "/ui/contexts/"))
    page = await visitor.open(context)
    assert "c-1" in page
    assert "echo" in page
    assert f"/ui/tasks/{task['id']}" in visitor.html
    page = await visitor.open(f"/ui/tasks/{task['id']}")
    assert "completed" in page
    assert "count_words" in page
    assert "How many words are these?" in page
    page = await visitor.open(f"/ui/tasks/{task['id']}/events")
    assert "artifact" in page
    assert re.search(r" 1 \+\d+ ms ", page)
    [first, *_] = links(visitor, f"/ui/tasks/{task['id']}/events/")
    assert "statusUpdate" in await visitor.open(first) or '"task"' in visitor.html


async def test_long_texts_of_a_task_come_one_by_one(visitor: Visitor, echo: A2A) -> None:
    task = await echo.send("one two", "c-1")
    await visitor.open(f"/ui/tasks/{task['id']}")
    bodies = links(visitor, f"/ui/tasks/{task['id']}/body/")
    assert {link.split("/body/")[1].split("?")[0] for link in bodies} >= {"message", "arguments", "outcome", "said"}
    for link in bodies:
        answer = await visitor.http.get(link)
        assert answer.status_code in (200, 404)
        assert answer.headers["content-type"].startswith(("text/plain", "text/html"))
    [message] = [link for link in bodies if "/body/message" in link]
    assert '"one two"' in (await visitor.http.get(message)).text


@pytest.mark.parametrize(
    ("path", "area"),
    [
        ("/ui/agents/echo", "Overview"),
        ("/ui/tasks/{task}", "Contexts"),
        ("/ui/tasks/{task}/events", "Contexts"),
        ("/ui/import", "Contexts"),
        ("/ui/adopt", "Contexts"),
        ("/ui/deliveries?show=deletions", "Deliveries"),
        ("/ui/go?id=nothing", ""),
    ],
)
async def test_a_page_belongs_to_one_of_the_navigation(visitor: Visitor, echo: A2A, path: str, area: str) -> None:
    task = await echo.send("hi", "c-1")
    answer = await visitor.http.get(path.format(task=task["id"]))
    header = answer.text.partition("<main")[0]
    assert re.findall(r'aria-current="[a-z]+">([A-Za-z]+)<', header) == ([area] if area else [])


async def test_a_list_of_contexts_has_a_way_to_each_state(visitor: Visitor, echo: A2A) -> None:
    await echo.send("hi", "c-" + "x" * 40)
    page = await visitor.open("/ui/contexts?agent=echo&standing=failed")
    assert "No context fits." in page
    for standing in ("failed", "waiting", "working"):
        assert f"/ui/contexts?agent=echo&standing={standing}" in links(visitor, "/ui/contexts?")
    assert "c-" + "x" * 22 + "…" in await visitor.open("/ui/contexts")


async def test_a_turn_that_failed_is_told_with_its_reason(visitor: Visitor, gateway: Local) -> None:
    async with a2a_http(gateway.url) as http:
        broken = A2A(http, "broken")
        [*_, task] = [await broken.send("hi", "c-1") for _ in range(3)]
    page = await visitor.open("/ui/")
    assert "broken: 3 turns of a conversation have failed in a row within the last hour." in page
    assert "3 turns failed in the last hour ( broken )." in page
    assert "/ui/agents/broken#failures" in visitor.html
    page = await visitor.open("/ui/agents/broken")
    assert "Turns that failed" in page
    assert page.count("The agent's backend failed. backend-failed") == 3
    assert page.count("correlation id") == 3
    assert "The last call" not in page
    assert "recorded exchange" not in page
    assert f"/ui/tasks/{task['id']}" in visitor.html
    assert "failed" in await visitor.open("/ui/contexts?standing=failed")
    assert len(set(links(visitor, "/ui/contexts/"))) == 1
    [told] = re.findall(r"correlation id (\w+)", task["status"]["message"]["parts"][0]["text"])
    for path in ("/ui/", f"/ui/tasks/{task['id']}?show=problems", links(visitor, "/ui/contexts/")[0]):
        assert f"correlation id {told}" in await visitor.open(path), path
    assert (await visitor.follow(f"/ui/go?id={told}")).startswith(f"/ui/tasks/{task['id']}#turn-")


async def test_the_heading_of_a_conversation_says_how_its_latest_turn_ended(visitor: Visitor, gateway: Local) -> None:
    async with a2a_http(gateway.url) as http:
        await A2A(http, "broken").send("hi", "c-1")
        await visitor.open("/ui/contexts")
        [context] = set(links(visitor, "/ui/contexts/"))
        await visitor.open(context)
        assert states_in_headings(visitor.html) == ["failed", "failed"]
        await A2A(http, "echo").send("hi", "c-1")
    await visitor.open(context)
    # The latest turn is that of another agent.
    assert sorted(states_in_headings(visitor.html)) == ["failed", "idle", "idle"]


async def test_a_context_is_reached_by_its_public_id_too(visitor: Visitor, echo: A2A) -> None:
    await echo.send("hi", "a/b c")
    await visitor.open("/ui/contexts")
    [context] = set(links(visitor, "/ui/contexts/"))
    assert await visitor.follow("/ui/contexts/a%2Fb%20c") == context
    assert await visitor.follow("/ui/contexts/a%2Fb%20c/next?agent=echo") == f"{context}/next?agent=echo"
    assert "There is no such context" in await visitor.open("/ui/contexts/none", 404)


async def test_a_public_id_of_several_principals_leads_to_a_choice(start_local: StartLocal) -> None:
    settings = "auth: {mode: any_of, api_keys: {enabled: true}}"
    gateway = await start_local(AGENTS, settings=settings)
    for name in ("ada", "eve"):
        async with a2a_http(gateway.url) as http:
            http.headers["authorization"] = f"Bearer {await make_key(gateway, name, admin=False)}"
            await A2A(http, "echo").send("hi", "c-1")
    async with visiting(gateway) as visitor:
        await visitor.log_in(await make_key(gateway))
        page = await visitor.open(await visitor.follow("/ui/contexts/c-1"))
        assert "ada" in page
        assert "eve" in page
        assert len(set(links(visitor, "/ui/contexts/"))) == 2


async def test_an_agent_tells_its_policies_tools_and_card(visitor: Visitor) -> None:
    page = await visitor.open("/ui/agents/echo")
    assert "the gateway keeps the conversation" in page
    assert "A turn may take 15 min" in page
    assert '"name": "echo"' in page


async def test_an_agent_tells_how_long_its_tools_usually_take(start_local: StartLocal, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text("def book(city: str) -> str:\n    return city\n", encoding="utf-8")
    script = in_rounds([Call("book", {"city": f"{at}"}) for at in range(3)], [Say("Booked.")])
    async with ChatServer(script).serve() as url:
        agent = f"desk: {{type: openai-chat, model: m, base_url: '{url}/v1', tools: [book]}}"
        settings = f"tools: {{book: {{type: python, ref: '{tmp_path}/desk.py:book'}}}}"
        gateway = await start_local(agent, settings=settings)
        async with visiting(gateway) as visitor, a2a_http(gateway.url) as http:
            assert "Usually takes" in await visitor.open("/ui/agents/desk")
            assert "at most" not in visitor.html
            await A2A(http, "desk").send("hi")
            assert re.search(r"at most \d", await visitor.open("/ui/agents/desk"))
            assert "slow now" not in visitor.html


async def test_the_next_request_is_shown_with_what_is_left_out(visitor: Visitor, echo: A2A) -> None:
    await echo.send("first", "c-1")
    await visitor.open("/ui/contexts")
    [context] = set(links(visitor, "/ui/contexts/"))
    page = await visitor.open(f"{context}/next?agent=echo")
    assert "The gateway keeps the conversation" in page
    assert "message" in page
    assert "first" in page
    assert "This context has no conversation with this agent" in await visitor.open(f"{context}/next?agent=broken", 404)


@pytest.mark.parametrize("kind", ["task", "context"])
async def test_an_id_leads_to_its_page(visitor: Visitor, echo: A2A, kind: str) -> None:
    task = await echo.send("hi", "c-1")
    wanted = {"task": task["id"], "context": "c-1"}[kind]
    assert (await visitor.follow(f"/ui/go?id={wanted}")).startswith(f"/ui/{kind}s/")


async def test_an_id_of_nothing_is_said(visitor: Visitor) -> None:
    assert "Nothing found for “ nothing ”" in await visitor.open("/ui/go?id=nothing", 404)
    assert 'maxlength="4096" value="nothing"' in visitor.html
    assert "Nothing that is kept has this id" in await visitor.open("/ui/go?id=nothing", 404)
    assert await visitor.follow("/ui/go?id=") == "/ui/"


async def test_hostile_words_are_shown_as_they_are(visitor: Visitor, echo: A2A) -> None:
    task = await echo.send(EVIL, "<b>c</b>")
    await visitor.open("/ui/contexts")
    pages = ["/ui/", "/ui/contexts", *links(visitor, "/ui/contexts/"), f"/ui/tasks/{task['id']}"]
    pages += [f"/ui/tasks/{task['id']}/events", "/ui/go?id=%3Cscript%3E", f"/ui/playground?context={'%3Cb%3E'}"]
    for path in pages:
        answer = await visitor.http.get(path)
        assert "<script>" not in answer.text, path
        assert "\u202e" not in answer.text, path
        assert "<b>c</b>" not in answer.text, path


async def test_too_many_pages_at_once_are_refused(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ui.site._AT_ONCE", 0)
    answer = await visitor.http.get("/ui/")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_pages_take_nothing_of_their_visitors_quota(start_local: StartLocal) -> None:
    settings = "limits: {requests_per_minute: 1}"
    async with visiting(await start_local(AGENTS, settings=settings)) as visitor:
        for _ in range(4):
            await visitor.open("/ui/")


async def test_admins_see_all_principals_and_the_audit_log_says_so(start_local: StartLocal, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    settings = f"auth: {{mode: any_of, api_keys: {{enabled: true}}}}\naudit: {{path: {audit}}}"
    gateway = await start_local(AGENTS, settings=settings)
    ada = await make_key(gateway, "ada", admin=False)
    async with a2a_http(gateway.url) as http:
        http.headers["authorization"] = f"Bearer {ada}"
        task = await A2A(http, "echo").send("hi", "c-1")
    async with visiting(gateway) as visitor:
        await visitor.log_in(await make_key(gateway))
        assert "ada" in await visitor.open("/ui/contexts")
        await visitor.open(f"/ui/tasks/{task['id']}")
    lines = audit.read_text(encoding="utf-8")
    assert '"action":"session.begun"' in lines
    assert '"action":"context.listed"' in lines
    assert '"action":"context.seen"' in lines


async def test_what_an_agent_masks_is_shown_on_request_and_the_audit_log_says_so(
    start_local: StartLocal, tmp_path: Path
) -> None:
    masking = AGENTS.replace("default: true", "default: true, tool_calls: {redact: ['$.args.text']}")
    gateway = await start_local(masking, settings=f"audit: {{path: {tmp_path}/audit.jsonl}}")
    async with visiting(gateway) as visitor, a2a_http(gateway.url) as http:
        task = await A2A(http, "echo").send("my pin is 1234")
        await visitor.open(f"/ui/tasks/{task['id']}")
        [masked, unmasked] = links(visitor, f"/ui/tasks/{task['id']}/body/arguments")
        assert "1234" not in (await visitor.http.get(masked)).text
        assert "content.unmasked" not in (tmp_path / "audit.jsonl").read_text(encoding="utf-8")
        assert "1234" in (await visitor.http.get(unmasked)).text
        assert "content.unmasked" in (tmp_path / "audit.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("settings", ["", ", tool_calls: {redact: ['$.args.pin']}"])
async def test_a_timeline_tells_what_was_said_whatever_tools_mask(start_local: StartLocal, settings: str) -> None:
    gateway = await start_local(AGENTS.replace("default: true", f"default: true{settings}"))
    words = "This sentence stands in the timeline to its end. " * 3
    async with visiting(gateway) as visitor, a2a_http(gateway.url) as http:
        task = await A2A(http, "echo").send(words)
        page = await visitor.open(f"/ui/tasks/{task['id']}")
        assert words.strip() in page
        assert "messageId" not in page
        assert "[redacted]" not in page
        long = await A2A(http, "echo").send("word " * 300)
        assert "word …" in await visitor.open(f"/ui/tasks/{long['id']}")


async def test_a_text_of_another_task_is_not_shown_under_this_one(visitor: Visitor, echo: A2A) -> None:
    one, other = await echo.send("one", "c-1"), await echo.send("other", "c-2")
    await visitor.open(f"/ui/tasks/{other['id']}")
    for link in links(visitor, f"/ui/tasks/{other['id']}/body/"):
        answer = await visitor.http.get(link.replace(other["id"], one["id"], 1))
        assert answer.status_code == 404, link


async def test_a_task_that_has_asked_without_a_tool_call_waits_on_every_page(visitor: Visitor, gateway: Local) -> None:
    async with a2a_http(gateway.url) as http:
        asking = A2A(http, "asking")
        task = await asking.send("?", "c-1")
        assert "1 waits for its caller ( asking )." in await visitor.open("/ui/")
        assert "/ui/contexts?agent=asking&standing=waiting" in links(visitor, "/ui/contexts?")
        assert "c-1" in await visitor.open("/ui/contexts?standing=waiting")
        [context] = set(links(visitor, "/ui/contexts/"))
        assert "No context fits." in await visitor.open("/ui/contexts?standing=idle")
        await visitor.open(context)
        assert states_in_headings(visitor.html) == ["waits", "waits"]
        await asking.send("Oslo", "c-1", taskId=task["id"])
        await visitor.open(context)
        assert states_in_headings(visitor.html) == ["idle", "idle"]
        assert "No context fits." in await visitor.open("/ui/contexts?standing=waiting")


async def test_an_agent_that_is_gone_is_not_replaced_by_another_one(visitor: Visitor) -> None:
    page = await visitor.open("/ui/playground?agent=gone&context=c-1", 404)
    assert "no agent is called" in page
    assert "data-wire" not in visitor.html
    await visitor.open("/ui/contexts?agent=gone")
    assert "<option selected>gone</option>" in visitor.html
