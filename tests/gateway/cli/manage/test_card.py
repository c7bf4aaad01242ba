"""`card`, as text and as JSON."""

import json

import pytest

from tests.gateway.cli.conftest import CommandLine
from tests.gateway.cli.scripted_agent import ScriptedAgent


async def test_a_card_in_short(command_line: CommandLine) -> None:
    extension = {"uri": "https://x.example/e", "required": True}
    card = {"capabilities": {"streaming": True, "extensions": [extension]}, "description": "Says \x1b[31mred."}
    async with ScriptedAgent(card=card).running() as agent:
        ended = await command_line("card", "-u", agent.url)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.splitlines() == [
            "Scripted 1.2.3",
            "Says \\x1b[31mred.",
            "",
            f"card         {agent.url}/.well-known/agent-card.json",
            f"interface    JSONRPC 1.0 at {agent.url}/rpc",
            "capabilities streaming",
            "extension    https://x.example/e (required)",
            "takes        text/plain",
            "gives        text/plain",
            "skill        say: Says it",
        ]


@pytest.mark.parametrize("how", ["address", "option", "environment"])
async def test_the_card_as_it_is(how: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedAgent().running() as agent:
        arguments = {"address": [f"{agent.url}/.well-known/agent-card.json"], "option": ["-u", agent.url]}
        if how == "environment":
            monkeypatch.setenv("A2A_GATEWAY_URL", agent.url)
        ended = await command_line("card", *arguments.get(how, ()), "-o", "json")
        assert json.loads(ended.out) == agent.card()


async def test_a_malformed_card_is_shown_as_far_as_it_is_valid(command_line: CommandLine) -> None:
    card = {"name": 7, "version": None, "capabilities": "all", "skills": [1], "defaultInputModes": 3}
    async with ScriptedAgent(card=card).running() as agent:
        ended = await command_line("card", agent.url)
    assert ended.code == 0
    assert "takes        not said" in ended.out


async def test_a_missing_agent_is_reported(command_line: CommandLine) -> None:
    async with ScriptedAgent().running() as agent:
        ended = await command_line("card", "nobody", "-u", agent.url)
        expected = f"there is no agent card at {agent.url}/a2a/nobody/.well-known/agent-card.json\n"
        assert (ended.code, ended.out, ended.err) == (69, "", expected)
