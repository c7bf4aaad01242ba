"""Rules about approvals that fit no tool: at start, at a reload, and where a source is not there to be compared with."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.app import approvals
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.testing.serving import serve
from tests.a2a_client import A2A, a2a_http
from tests.adapters.tools.served_mcp import SMALL, Served
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Say, in_rounds
from tests.running import local_gateway

DESK = '''
def book(hotel: str) -> str:
    """Books a room."""
    return f"booked {hotel}"
'''
SETTINGS = "tools: {desk: {type: python, ref: './desk.py:book'}, other: {type: http, url: 'http://localhost/', description: d}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")
    return tmp_path


def agent(rule: str, tools: str = "desk", url: str = "http://localhost:1") -> str:
    return f"hotel: {{type: openai-chat, model: m, base_url: '{url}/v1', tools: [{tools}], approvals: [{rule}]}}"


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            "{tool: desk.boook}",
            "agents.hotel.approvals[0].tool: 'desk.boook' fits no tool; did you mean 'desk.book'? there: desk.book",
        ),
        (
            "{tool: desk.Book}",
            "agents.hotel.approvals[0].tool: 'desk.Book' fits no tool; did you mean 'desk.book'? there: desk.book",
        ),
        (
            "{tool: desk.book, ask: false}, {tool: 'des*.pay*', ask: false}",
            "agents.hotel.approvals[1].tool: 'des*.pay*' fits no tool; there: desk.book",
        ),
        (
            "{tool: 'desk.*', arguments: {hotl: Ritz}}",
            "agents.hotel.approvals[0].arguments: no tool that 'desk.*' fits takes 'hotl'; it fits desk.book",
        ),
    ],
)
async def test_a_gateway_with_a_rule_that_fits_no_tool_does_not_start(folder: Path, rule: str, problem: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        async with local_gateway(agent(rule), folder, settings=SETTINGS):
            raise AssertionError("it has started")
    assert str(refused.value) == problem
    assert not (folder / "gateway.db").exists()


async def test_a_rule_that_means_several_sources_has_to_fit_a_tool_of_one(folder: Path) -> None:
    rules = "{tool: '*.book'}, {tool: '*', arguments: {hotel: Ritz}}"
    async with local_gateway(agent(rules, "desk, other"), folder, settings=SETTINGS):
        """It has started."""


async def test_a_reload_with_a_rule_that_fits_no_tool_changes_nothing(folder: Path) -> None:
    async with local_gateway(agent("{tool: desk.book}"), folder, settings=SETTINGS) as local:
        before = local.gateway.app.agents
        text = f"version: 1\n{SETTINGS}\nagents:\n  {agent('{tool: desk.boook}')}\n"
        following = load(text, source="test.yaml", env={}, plugins=Registry(), base_dir=folder)
        with pytest.raises(ConfigInvalid, match=r"'desk\.boook' fits no tool"):
            await local.gateway.reload(following)
        assert local.gateway.app.agents is before


# --- a source that is not there at start


@pytest.fixture
async def small() -> AsyncIterator[Served]:
    server = Served((*SMALL, "PORT"))
    yield server
    await server.kill()


@pytest.mark.parametrize(
    ("rule", "state", "required"),
    [
        ("{tool: small.ecko}", "TASK_STATE_INPUT_REQUIRED", "true"),
        ("{tool: small.ecko}", "TASK_STATE_INPUT_REQUIRED", "false"),
        ("{tool: small.ecko, arguments: {text: never}}", "TASK_STATE_INPUT_REQUIRED", "true"),
        ("{tool: small.ecko}, {tool: small.echo, ask: false}", "TASK_STATE_INPUT_REQUIRED", "true"),
        ("{tool: small.echo, ask: false}, {tool: small.ecko}", "TASK_STATE_COMPLETED", "true"),
        ("{tool: small.add}", "TASK_STATE_COMPLETED", "true"),
        ("{tool: small.echo}", "TASK_STATE_INPUT_REQUIRED", "true"),
    ],
)
async def test_the_calls_of_a_source_that_was_down_at_start_ask_under_a_rule_that_fits_none_of_its_tools(
    tmp_path: Path, small: Served, rule: str, state: str, required: str
) -> None:
    script = in_rounds([Call("echo", {"text": "hi"})], [Say("Done.")])
    settings = f"tools: {{small: {{type: mcp, url: '{small.url}', required: {required}}}}}"
    server = ChatServer(script)
    async with serve(server.app) as backend:
        with capture_logs() as logs:
            async with local_gateway(agent(rule, "small", backend), tmp_path, settings=settings) as local:
                await small.start()
                async with a2a_http(local.url) as http:
                    task: dict[str, Any] = await A2A(http, "hotel").send("Say hi.")
    assert task["status"]["state"] == state
    assert [(line["source"], line["log_level"]) for line in logs if line["event"] == "approvals.not-compared"] == [
        ("small", "warning")
    ]
    if state == "TASK_STATE_INPUT_REQUIRED":
        assert task["status"]["message"]["parts"][0]["text"] == 'May the tool small.echo with {"text":"hi"} be used?'


async def test_a_source_that_hangs_at_start_does_not_hold_it_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "_START_SECONDS", 0.05)
    program = "[python3, -c, 'import time; time.sleep(600)']"
    settings = f"tools: {{desk: {{type: mcp, command: {program}}}}}"
    async with local_gateway(agent("{tool: desk.boook}"), folder, settings=settings):
        """It has started."""
