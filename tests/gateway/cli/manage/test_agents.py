"""`agents`: what a gateway serves."""

import json
from pathlib import Path

from starlette.applications import Starlette

from gateway.testing.serving import serve
from tests.gateway.cli.conftest import Call, CommandLine
from tests.running import local_gateway

AGENTS = """\
one: {type: python, ref: './agent.py:reply', card: {name: The first, description: Answers.}}
two: {type: python, ref: './agent.py:reply'}
"""


async def test_the_agents_of_a_gateway_are_listed(tmp_path: Path, command_line: CommandLine) -> None:
    (tmp_path / "agent.py").write_text("def reply(text): return text\n")
    async with local_gateway(AGENTS, tmp_path) as gateway:
        ended = await command_line("agents", "list", "-u", gateway.url)
        assert (ended.code, ended.out) == (0, "one\tThe first\tAnswers.\ntwo\ttwo\tThe agent two\n")
        assert (await command_line("agents", "list", "-u", f"{gateway.url}/a2a/")).out == ended.out
        for option in (("-o", "json"), ("--json",)):
            ended = await command_line("agents", "list", "-u", gateway.url, *option)
            assert [agent["agent"] for agent in json.loads(ended.out)["agents"]] == ["one", "two"]


async def test_a_server_that_is_no_gateway_has_no_list_of_agents(command_line: CommandLine) -> None:
    async with serve(Starlette()) as url:
        ended = await command_line("agents", "list", "-u", url)
    assert (ended.code, ended.err) == (
        69,
        f"there is no list of agents at {url}/a2a: that is no gateway of this kind\n",
    )


def test_two_formats_exclude_each_other(call: Call) -> None:
    ended = call("agents", "list", "--json", "-o", "jsonl")
    assert (ended.code, ended.err) == (2, "--json is the same as -o json: leave out --json or -o jsonl\n")


async def test_every_command_with_an_output_takes_json_in_short(tmp_path: Path, command_line: CommandLine) -> None:
    (tmp_path / "agent.py").write_text("def reply(text): return text\n")
    async with local_gateway(AGENTS, tmp_path) as gateway:
        where = ("-u", gateway.url, "-a", "one")
        for words in (("send", "Hi", *where), ("tasks", "list", *where), ("card", "one", "-u", gateway.url)):
            ended = await command_line(*words, "--json")
            assert (ended.code, isinstance(json.loads(ended.out), dict)) == (0, True)
