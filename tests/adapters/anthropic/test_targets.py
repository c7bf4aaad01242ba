"""What `serve anthropic:MODEL` and `serve messages:URL#MODEL` mean."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from adapters.anthropic.targets import SHORTHAND
from gateway.ports.targets import EnvironmentValue, Target, TargetAgent, TargetProblem


def read(text: str, name: str | None = None, env: Mapping[str, str] | None = None) -> TargetAgent | None:
    kind, _, rest = text.partition(":")
    typed = text if name is None else f"{name}={text}"
    return SHORTHAND.read(Target(typed, kind, rest, name, env or {}, Path(), Path()))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("anthropic:", "names no model; write bot=anthropic:MODEL, such as anthropic:claude-sonnet-4-5"),
        ("messages:", "has no address of a server; did you mean 'bot=messages:http://localhost:8000#MODEL'?"),
        ("messages:h:1#m", "has no address of a server; did you mean 'bot=messages:http://h:1#m'?"),
        ("messages:http://h", "names no model; write it behind the address: 'bot=messages:http://h#MODEL'"),
    ],
)
def test_a_target_that_gives_no_agent_says_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(TargetProblem) as caught:
        read(text, "bot", {"ANTHROPIC_API_KEY": "sk-ant-1"})
    assert (caught.value.text, caught.value.lacking) == (problem, False)


def test_a_missing_key_is_named_by_its_variable() -> None:
    with pytest.raises(TargetProblem) as caught:
        read("anthropic:claude-x")
    assert caught.value.lacking
    assert caught.value.text == (
        "needs the key of an Anthropic account; set ANTHROPIC_API_KEY, as in: ANTHROPIC_API_KEY=sk-ant-... "
        "a2a-gateway serve anthropic:claude-x"
    )


def test_a_target_names_a_model_of_anthropic_or_of_another_server() -> None:
    assert read("anthropic:claude-x", env={"ANTHROPIC_API_KEY": "sk-ant-1"}) == TargetAgent(
        "claude-x", {"model": "claude-x", "api_key": EnvironmentValue("ANTHROPIC_API_KEY")}
    )
    assert read("messages:http://gpu:8000#qwen/q") == TargetAgent(
        "qwen/q", {"model": "qwen/q", "base_url": "http://gpu:8000"}
    )
