"""Targets of `serve`."""

from pathlib import Path

import pytest

from adapters.copilot.targets import SHORTHAND
from gateway.ports.targets import EnvironmentValue, Target, TargetAgent, TargetProblem

HOST = "https://env.ef.environment.api.powerplatform.com"
ENDPOINT = f"{HOST}/powervirtualagents/botsbyschema/cr1_bot/directline/token?api-version=1"
AGENT = f"{HOST}/copilotstudio/dataverse-backed/authenticated/bots/cr1_bot/conversations?api-version=1"
ENV = {"DIRECT_LINE_SECRET": "s", "COPILOT_STUDIO_TOKEN": "t"}


def read(text: str, env: dict[str, str]) -> TargetAgent | None:
    kind, _, rest = text.partition(":")
    return SHORTHAND.read(Target(text, kind, rest, None, env, Path(), Path()))


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        (f"copilot:{ENDPOINT}", TargetAgent("cr1_bot", {"direct_line": {"token_endpoint": ENDPOINT}})),
        (
            f"copilot:{AGENT}",
            TargetAgent(
                "cr1_bot",
                {"direct_to_engine": {"url": AGENT, "token": EnvironmentValue("COPILOT_STUDIO_TOKEN")}},
            ),
        ),
        ("directline:", TargetAgent("bot", {"direct_line": {"secret": EnvironmentValue("DIRECT_LINE_SECRET")}})),
        (
            "directline:http://host/v3/directline",
            TargetAgent(
                "bot",
                {
                    "direct_line": {
                        "secret": EnvironmentValue("DIRECT_LINE_SECRET"),
                        "url": "http://host/v3/directline",
                    }
                },
            ),
        ),
    ],
)
def test_a_target_stands_for_an_agent(text: str, agent: TargetAgent) -> None:
    assert read(text, ENV) == agent


@pytest.mark.parametrize(
    ("text", "problem", "lacking"),
    [
        ("copilot:bot", "has no address", False),
        ("directline:bot", "has no address", False),
        (f"copilot:{AGENT}", "set COPILOT_STUDIO_TOKEN", True),
        ("directline:", "set DIRECT_LINE_SECRET", True),
    ],
)
def test_a_target_that_lacks_something_says_what(text: str, problem: str, lacking: bool) -> None:
    with pytest.raises(TargetProblem, match=problem) as caught:
        read(text, {})
    assert caught.value.lacking is lacking


def test_a_token_endpoint_needs_nothing_else() -> None:
    assert read(f"copilot:{ENDPOINT}", {}) is not None
