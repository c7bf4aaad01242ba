"""The commands: names, and help with examples."""

import re

import pytest
import typer

from gateway.cli.commands import app
from tests.gateway.cli.conftest import Call

COMMANDS = (
    "serve", "demo", "init", "check", "schema", "card", "send", "stream", "chat", "health", "backup",
    "restore", "version", "agents", "tasks", "contexts", "push", "keys",
)  # fmt: skip


def test_these_are_the_commands() -> None:
    group = typer.main.get_command(app)
    assert tuple(group.list_commands(typer.Context(group))) == COMMANDS  # type: ignore[attr-defined]  # it is a group


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command: str, call: Call) -> None:
    ended = call(command, "--help")
    assert (ended.code, ended.err) == (0, "")
    examples = ended.out.partition("Examples:")[2].strip().splitlines()
    assert examples
    assert all(re.search(rf"a2a-gateway {command}\b", example) for example in examples)


def test_the_list_of_commands_is_not_cut_off(call: Call) -> None:
    assert "..." not in call("--help").out.partition("Commands:")[2]
