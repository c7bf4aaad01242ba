"""What the page at / says to type, typed: every snippet as it stands there, against the gateway that shows it."""

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gateway.ledger.api_keys import ApiKey, IssueKey, digest_of, new_key, shown
from tests.a2a_client import a2a_http
from tests.interop import peer_processes
from tests.interop.echo_agent import knows
from tests.running import Local, StartLocal

AGENT = "echo: {type: python, ref: 'tests.interop.echo_agent:reply', card: {name: Repeater}}"
KEYS = "auth: {mode: any_of, api_keys: {enabled: true}}"
TITLES = (
    "curl: the card",
    "curl: a message and its answer",
    "curl: the answer as it comes",
    "Python: a2a-sdk",
    "JavaScript: @a2a-js/sdk",
)


class Snippets(HTMLParser):
    """The texts to copy from the page, by title, each with its language."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}
        self._title = ""
        self._language: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "pre":
            self._title = given["aria-label"] or ""
        elif tag == "code":
            self._language = given.get("class")

    def handle_endtag(self, tag: str) -> None:
        if tag == "code":
            self._language = None

    def handle_data(self, data: str) -> None:
        if self._language is not None:
            _, before = self.found.get(self._title, ("", ""))
            self.found[self._title] = (self._language, before + data)


async def key_of(gateway: Local) -> str:
    key = new_key()
    record = ApiKey(digest_of(key), "k", shown(key), "ada", "", False, 0)
    await gateway.gateway.runner.runtime.ledger.commit(IssueKey(record))
    return key


async def snippets(gateway: Local) -> dict[str, tuple[str, str]]:
    async with a2a_http(gateway.url) as http:
        return Snippets((await http.get("/", headers={"Accept": "text/html"})).text).found


async def test_the_page_has_these_snippets(start_local: StartLocal) -> None:
    assert tuple(await snippets(await start_local(AGENT))) == TITLES


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("settings", ["", KEYS], ids=["open", "keyed"])
async def test_a_snippet_does_what_it_says(start_local: StartLocal, tmp_path: Path, title: str, settings: str) -> None:
    if title.startswith("curl") and shutil.which("curl") is None:
        peer_processes.absent("curl is not installed")
    gateway = await start_local(AGENT, settings=settings)
    environment = {"A2A_GATEWAY_KEY": await key_of(gateway)} if settings else {}
    language, text = (await snippets(gateway))[title]

    folder = tmp_path / "snippet"
    folder.mkdir()
    told = await peer_processes.snippet(folder, language, text, environment)

    match title:
        case "curl: the card":
            assert json.loads(told)["name"] == "Repeater"
        case "curl: a message and its answer":
            task = json.loads(told)["task"]
            [artifact] = task["artifacts"]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            assert "".join(part["text"] for part in artifact["parts"]) == knows("Hello")
        case "curl: the answer as it comes":
            events = [json.loads(line.removeprefix("data: ")) for line in told.splitlines() if line.startswith("data")]
            assert "task" in events[0]
            assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        case _:
            assert told == knows("Hello")
