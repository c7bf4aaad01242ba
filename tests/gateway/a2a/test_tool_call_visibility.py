"""The visibility of tool calls: settings, and the wishes of the client."""

import pytest

from gateway.a2a.model import AgentExtension
from gateway.a2a.redaction import json_path
from gateway.a2a.tool_calls import (
    ARTIFACT_CLIENTS,
    HIDDEN,
    URI,
    Rendering,
    Visibility,
    VisibilityRule,
    card_extensions,
    rendering,
)
from tests.tool_call_vectors import valid

ADK = "https://google.github.io/adk-docs/a2a/a2a-extension/"
NOBODY: frozenset[str] = frozenset()
PATHS = (json_path("$.args.a"),)


@pytest.mark.parametrize(
    ("when", "named", "shown"),
    [
        ("always", NOBODY, Rendering()),
        ("always", {URI}, Rendering(active=True)),
        ("negotiated", NOBODY, HIDDEN),
        ("negotiated", {ADK}, HIDDEN),
        ("negotiated", {URI}, Rendering(active=True)),
        ("never", {URI}, HIDDEN),
    ],
)
def test_tool_calls_are_shown_to_those_whom_the_agent_means(when: str, named: set[str], shown: Rendering) -> None:
    assert rendering(Visibility(when=when), "ada", frozenset(named)) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("channel", "named", "used"),
    [
        ("auto", NOBODY, "status"),
        ("auto", {URI, "https://unknown.example"}, "status"),
        *(("auto", {uri}, "artifact") for uri in sorted(ARTIFACT_CLIENTS)),
        ("status", {ADK}, "status"),
        ("artifact", NOBODY, "artifact"),
    ],
)
def test_the_channel_is_the_clients_unless_the_agent_has_one(channel: str, named: set[str], used: str) -> None:
    assert rendering(Visibility(channel=channel), "ada", frozenset(named)).channel == used  # type: ignore[arg-type]


def test_google_adk_is_among_the_clients_that_read_artifacts() -> None:
    assert ADK in ARTIFACT_CLIENTS


@pytest.mark.parametrize(
    ("principal", "exposure", "redact"),
    [
        ("ada", "full", ()),
        ("team-a", "names", PATHS),
        ("team-b", "names", PATHS),
        ("bob", "args", ()),
        ("eve", "none", PATHS),
    ],
)
def test_the_first_rule_that_fits_a_caller_holds_for_it(principal: str, exposure: str, redact: object) -> None:
    rules = (
        VisibilityRule(("ada",), exposure="full", redact=()),
        VisibilityRule(("team-*", "nobody"), exposure="names"),
        VisibilityRule(("bob", "team-a"), redact=()),
        VisibilityRule(("*",), exposure="none"),
    )
    shown = rendering(Visibility(exposure="args", redact=PATHS, rules=rules), principal, NOBODY)
    assert (shown.exposure, shown.redact) == (exposure, redact)


def test_no_rule_opens_what_is_shown_to_nobody() -> None:
    visibility = Visibility(when="negotiated", rules=(VisibilityRule(("*",), exposure="full"),))
    assert rendering(visibility, "ada", NOBODY) == HIDDEN


def test_the_limit_of_results_is_the_agents() -> None:
    assert rendering(Visibility(max_result=5), "ada", NOBODY).max_result == 5


def test_a_card_declares_the_extension_and_never_requires_it() -> None:
    [extension] = card_extensions(Visibility(exposure="args"), approvals=True)
    assert extension == AgentExtension(
        uri=URI,
        description="Tool calls and their results as updates of the task.",
        required=False,
        params={"exposure": "args", "approvals": True, "clientTools": False},
    )
    assert valid("declaration", extension.params)


def test_a_card_says_nothing_of_what_nobody_is_shown() -> None:
    assert card_extensions(Visibility(when="never")) == ()
