"""The page at / of a gateway, as browsers and others get it."""

import base64
import hashlib
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gateway.config.agents import CardConfig, SkillConfig
from gateway.config.gateway import ProviderConfig
from gateway.core.agents import Agent, Agents
from gateway.core.described_card import AgentCards, DescribedCard
from gateway.http.cards import build_card
from gateway.ports.capabilities import Description
from gateway.ui.front.route import FrontPage
from tests.a2a_client import a2a_http
from tests.interaction import asgi
from tests.interaction.harness import URL, Unused, agent
from tests.running import StartLocal, start_local

__all__ = ["start_local"]

STARTED = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
AGENT = "echo: {type: python, ref: 'tests.interop.echo_agent:reply', card: {name: Repeater"
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"
HOSTILE = (
    "</code></pre></style><script src=//evil.example></script><img src=x onerror=alert(1)>\"'\u202e\x00{{ 7 * 7 }}"
)


class Elements(HTMLParser):
    """All tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def front(*agents: Agent) -> FrontPage:
    return FrontPage(Agents(agents or (agent("echo"),)), URL, STARTED)


async def ask(page: FrontPage, accept: str | None = BROWSER, method: str = "GET", **headers: str) -> asgi.Answer:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return await asgi.request(page, method, "/", named if accept is None else [*named, ("accept", accept)])


@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/json", "text/*", "text/htmlx", "text/html;q=0", "text/html; q=0.000, */*"]
)
async def test_who_does_not_name_html_gets_what_stands_at_no_address(accept: str | None) -> None:
    answer = await ask(front(), accept)
    assert (answer.status, answer.json["error"]["message"]) == (404, "nothing stands at this address")
    assert answer.header("vary") == "accept"


async def test_the_page_is_read_only() -> None:
    assert (await ask(front(), method="POST")).status == 404


@pytest.mark.parametrize("accept", [BROWSER, "text/html", "TEXT/HTML;q=0.5", "application/json, text/html;level=1"])
async def test_a_browser_gets_the_page(accept: str) -> None:
    answer = await ask(front(), accept)
    assert (answer.status, answer.header("content-type")) == (200, "text/html; charset=utf-8")
    assert "Says it again." in Elements(answer.body.decode()).text


async def test_the_page_holds_no_script_and_asks_nobody_for_anything() -> None:
    answer = await ask(front())
    found = Elements(answer.body.decode())
    assert not {"script", "img", "iframe", "object", "form", "base"} & set(found.tags)
    assert [(name, value) for name, value in found.attributes if name == "src" or name.startswith("on")] == []
    assert answer.header("set-cookie") is None


async def test_the_policy_admits_the_style_of_the_page_and_nothing_else() -> None:
    answer = await ask(front())
    [style] = re.findall(r"<style>(.*?)</style>", answer.body.decode(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert answer.header("content-security-policy") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    assert " style=" not in answer.body.decode()
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("referrer-policy") == "no-referrer"


async def test_hostile_texts_are_shown_and_do_nothing() -> None:
    plain = Elements((await ask(front())).body.decode())
    card = CardConfig(
        name=HOSTILE,
        description=HOSTILE,
        version=HOSTILE,
        skills=(SkillConfig(id="echo", name=HOSTILE, description=HOSTILE, tags=(HOSTILE,)),),
    )
    made = build_card("echo", card, URL, provider=ProviderConfig(url="https://p.example/?'<\">", organization=HOSTILE))

    found = Elements((await ask(front(Agent("echo", made, Unused())))).body.decode())

    assert set(found.tags) == set(plain.tags)
    assert found.tags.count("style") == 1
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "src"]
    assert found.text.count("<script src=//evil.example></script>") == 6
    assert found.text.count("⟨U+202E⟩⟨U+0000⟩{{ 7 * 7 }}") == 6


async def test_every_element_is_closed_and_every_id_is_there_once() -> None:
    text = (await ask(front(agent("echo"), agent("support", "acme")))).body.decode()
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|aria-labelledby=")([^"]*)"', text)) <= set(ids)
    for tag in ("section", "dl", "table", "ul", "details", "pre", "code", "bdi", "p"):
        assert text.count(f"<{tag}>") + text.count(f"<{tag} ") == text.count(f"</{tag}>"), tag


async def test_a_known_page_is_not_sent_again() -> None:
    page = front()
    etag = (await ask(page)).header("etag")
    assert etag is not None
    again = await ask(page, if_none_match=etag)
    assert (again.status, again.body, again.header("vary")) == (304, b"", "accept")


async def test_head_is_get_without_the_body() -> None:
    page = front()
    got, head = await ask(page), await ask(page, method="HEAD")
    assert (head.status, head.headers, head.body) == (200, got.headers, b"")


async def test_a_card_that_changes_changes_the_page() -> None:
    def make(told: Description | None) -> AgentCards:
        return AgentCards(build_card("echo", CardConfig(), URL, described=told))

    described = DescribedCard(make, make(None))
    page = front(replace(agent("echo"), described=described))
    before = await ask(page)
    described.tell(Description(name="Told"), 1_800_000_000_000)
    after = await ask(page)
    assert (b"Told" in before.body, b"Told" in after.body) == (False, True)
    assert (before.header("last-modified"), after.header("last-modified")) == (
        "Fri, 20 Nov 2026 10:00:00 GMT",
        "Fri, 15 Jan 2027 08:00:00 GMT",
    )


async def test_without_its_extra_the_page_is_a_list_of_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gateway.ui.front.page", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    answer = await ask(front(agent("echo"), agent("support")))
    assert (answer.status, answer.header("content-type")) == (200, "text/plain; charset=utf-8")
    lines = answer.body.decode().splitlines()
    assert f"support  {URL}/a2a/support/.well-known/agent-card.json" in lines
    assert f"All of them: {URL}/a2a" in lines


async def test_the_page_of_a_gateway_is_for_everybody_and_says_what_everybody_may_know(
    start_local: StartLocal,
) -> None:
    secret = "extended: {skills: [{id: s, name: Refund, description: Pays back, tags: [t]}]}"
    gateway = await start_local(f"{AGENT}, {secret}}}}}", settings=KEYS)
    async with a2a_http(gateway.url) as http:
        page = await http.get("/", headers={"Accept": BROWSER})
        assert (await http.get("/")).status_code == 404
    found = Elements(page.text)
    assert page.status_code == 200
    assert "Repeater" in found.text
    assert "with an API key" in found.text
    assert "Refund" not in page.text
    links = [value for name, value in found.attributes if name == "href" and value and value.startswith(gateway.url)]
    assert links == [
        f"{gateway.url}/a2a",
        f"{gateway.url}/openapi.json",
        f"{gateway.url}/a2a/echo/.well-known/agent-card.json",
    ]


def test_the_style_and_the_template_are_part_of_the_package() -> None:
    import gateway.ui.front.page as module

    assert sorted(path.name for path in (Path(module.__file__).parent / "templates").iterdir()) == [
        "front.css",
        "front.html",
    ]
