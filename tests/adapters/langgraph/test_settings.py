"""The settings of an agent, and the short forms of `serve`."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.langgraph.settings import LangGraphSettings
from adapters.langgraph.targets import SHORTHAND
from gateway.ports.targets import EnvironmentValue, Target, TargetAgent, TargetProblem, TargetSetting

URL = "http://localhost:2024"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "url"),
        ({"url": "localhost:2024"}, "http://"),
        ({"url": URL, "assistant": ""}, "assistant"),
        ({"url": URL, "api_key": "k", "auth": {"type": "api_key", "key": "k"}}, "exclude each other"),
        ({"url": URL, "context": {"a": 1}, "config": {"configurable": {"a": 1}}}, "exclude each other"),
        ({"url": URL, "config": {"configurable": {"thread_id": "x"}}}, "must not set 'thread_id'"),
        ({"url": URL, "config": {"configurable": 7}}, "must be a mapping"),
        ({"url": URL, "durability": "never"}, "durability"),
        ({"url": URL, "model": "m"}, "model"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        LangGraphSettings.model_validate(values)


def test_no_text_quotes_a_secret() -> None:
    settings = LangGraphSettings.model_validate({"url": URL, "auth": {"type": "api_key", "key": "secret-1"}})
    assert set(settings.secrets()) == {"", "secret-1"}
    assert "secret-1" not in repr(settings)


def test_agents_of_other_accounts_share_no_breaker() -> None:
    one, other, third = (
        LangGraphSettings.model_validate({"url": URL} | more).account
        for more in (
            {"api_key": "one-key"},
            {"api_key": "other-key"},
            {"api_key": "one-key", "headers": {"x-team": "a"}},
        )
    )
    assert len({one, other, third}) == 3


def target(rest: str, **env: str) -> Target:
    return Target(f"langgraph:{rest}", "langgraph", rest, None, env, Path(), Path())


def test_a_target_names_a_server_and_a_graph() -> None:
    settings: dict[str, TargetSetting] = {"url": URL, "assistant": "chat"}
    assert SHORTHAND.read(target(f"{URL}#chat")) == TargetAgent("chat", settings)
    settings["api_key"] = EnvironmentValue("LANGSMITH_API_KEY")
    assert SHORTHAND.read(target(f"{URL}#chat", LANGSMITH_API_KEY="k")) == TargetAgent("chat", settings)


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("chat", "has no address of a server; did you mean 'langgraph:http://localhost:2024#GRAPH'?"),
        ("#chat", "has no address of a server; did you mean 'langgraph:http://localhost:2024#chat'?"),
        (URL, f"names no graph; write it behind the address: 'langgraph:{URL}#GRAPH'"),
    ],
)
def test_a_target_that_names_too_little_says_what_is_missing(rest: str, says: str) -> None:
    with pytest.raises(TargetProblem) as caught:
        SHORTHAND.read(target(rest))
    assert caught.value.text == says
