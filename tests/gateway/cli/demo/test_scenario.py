"""The configuration of the demo and the page that introduces it."""

import shlex
from pathlib import Path

from gateway.cli.commands import app
from gateway.cli.demo.scenario import configuration, introduction
from gateway.config.loader import load
from gateway.config.plugins import Registry

AGENTS = ("responses", "notes", "chat", "python")
URL = "http://127.0.0.1:8099"


def test_the_configuration_of_the_demo_is_valid(tmp_path: Path) -> None:
    text = configuration("http://127.0.0.1:1/v1", tmp_path / 'it\'s "here".db')
    config = load(text, source="demo", env={}, plugins=Registry(), base_dir=tmp_path)
    assert tuple(config.agents) == AGENTS
    assert config.storage.url == f'sqlite:///{tmp_path}/it\'s "here".db'
    assert [config.agents[name].type for name in AGENTS] == [
        "openai-responses",
        "openai-responses",
        "openai-chat",
        "python",
    ]
    assert [config.agents[name].settings.model_dump().get("history", {}).get("owner") for name in AGENTS] == [
        None,
        "gateway",
        None,
        None,
    ]


def test_the_introduction_names_every_card_and_prints_commands_that_exist() -> None:
    text = introduction(URL, "bin/a2a-gateway", AGENTS)
    for name in AGENTS:
        assert f"{URL}/a2a/{name}/.well-known/agent-card.json" in text
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith(("  bin/", "  curl "))]
    known = {info.callback.__name__ for info in app.registered_commands if info.callback}
    ours = [words for words in commands if words[0] == "bin/a2a-gateway"]
    assert {words[1] for words in ours} == {"stream", "send"} <= known
    assert all(words[2:4] == ["-u", URL] for words in ours)
    assert [words[0] for words in commands].count("curl") == 1


def test_commands_do_not_name_the_default_address() -> None:
    assert " -u " not in introduction("http://127.0.0.1:8080", "a2a-gateway", AGENTS)
