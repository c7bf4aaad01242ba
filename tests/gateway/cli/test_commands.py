"""The commands: names, and help with examples."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli.commands import app
from tests.gateway.cli.conftest import Call

COMMANDS = (
    "serve", "demo", "init", "check", "backends", "schema", "card", "send", "stream", "chat", "health", "backup",
    "restore", "version", "agents", "tasks", "contexts", "push", "keys", "audit",
    "storage",
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


def test_a_file_that_may_not_be_read_is_reported_by_the_command_and_not_as_a_wrong_command_line() -> None:
    waiting: list[Any] = [typer.main.get_command(app)]
    files = 0
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for parameter in command.params:
            if parameter.type_descriptor.annotation is Path:
                files += 1
                assert not parameter.type_descriptor.parameter_info.readable, (command.name, parameter.name)
    assert files > 10


def test_the_list_of_commands_is_not_cut_off(call: Call) -> None:
    assert "..." not in call("--help").out.partition("Commands:")[2]
