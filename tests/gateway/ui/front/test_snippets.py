"""The snippets of the page as texts. What they do when they are run: tests/interop/test_front_page.py."""

import ast
import shlex

import pytest

from gateway.ui.front.snippets import KEY, snippets

ADDRESS = "https://a.example/base/a2a/echo"
CARD = f"{ADDRESS}/.well-known/agent-card.json"


@pytest.mark.parametrize("keyed", [True, False])
def test_a_key_is_read_from_the_environment_where_callers_authenticate(keyed: bool) -> None:
    card, *others = snippets(ADDRESS, CARD, keyed=keyed, talks=True)
    assert KEY not in card.text
    assert {KEY in each.text for each in others} == {keyed}


def test_an_agent_that_takes_no_text_is_sent_none() -> None:
    assert [each.title for each in snippets(ADDRESS, CARD, keyed=True, talks=False)] == ["curl: the card"]


def test_lines_for_a_shell_are_one_command_each() -> None:
    address = "https://a.example/$(touch x)';&/a2a/echo"
    for each in snippets(address, f"{address}/card", keyed=False, talks=True):
        if each.language == "sh":
            words = shlex.split(each.text)
            assert words[0] == "curl"
            assert next(word for word in words if word.startswith("https:")).startswith(address)


@pytest.mark.parametrize("keyed", [True, False])
def test_the_program_in_python_is_one(keyed: bool) -> None:
    address = 'https://a.example/"+x+"/a2a/echo'
    [program] = [each for each in snippets(address, CARD, keyed=keyed, talks=True) if each.language == "python"]
    texts = [node.value for node in ast.walk(ast.parse(program.text)) if isinstance(node, ast.Constant)]
    assert address in texts
