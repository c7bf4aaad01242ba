"""The commands in groups: each explains itself, with examples."""

import re

import pytest

from gateway.cli.group_commands import GROUPS
from tests.gateway.cli.conftest import Call

BELOW = [(group.name, name) for group in GROUPS for name in group.commands]


def test_these_are_the_commands_in_groups() -> None:
    assert [" ".join(words) for words in BELOW] == [
        "agents list",
        "tasks list",
        "tasks get",
        "tasks cancel",
        "tasks watch",
        "contexts list",
        "contexts show",
        "contexts export",
        "contexts import",
        "contexts adopt",
        "contexts delete",
        "push list",
        "push replay",
        "keys create",
        "keys list",
        "keys revoke",
        "audit verify",
        "storage copy",
    ]


@pytest.mark.parametrize(("group", "command"), BELOW)
def test_each_explains_itself_with_examples(group: str, command: str, call: Call) -> None:
    ended = call(group, command, "--help")
    assert (ended.code, ended.err) == (0, "")
    examples = ended.out.partition("Examples:")[2].strip().splitlines()
    assert examples
    assert all(re.search(rf"a2a-gateway {group} {command}\b", example) for example in examples)


def test_the_lists_of_commands_are_not_cut_off(call: Call) -> None:
    for group in GROUPS:
        assert "..." not in call(group.name, "--help").out.partition("Commands:")[2]
