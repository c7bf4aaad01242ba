"""Settings and targets of Foundry: what cannot be meant is refused when it is read."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.openai.foundry.adapter import factory
from adapters.openai.foundry.targets import SHORTHAND
from gateway.ports.targets import EnvironmentValue, Target, TargetProblem

_PROJECT = "https://name.services.ai.azure.com/api/projects/p"
_AUTH = {"type": "api_key", "key": "0123456789"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"endpoint": f"{_PROJECT}/openai/v1"}, "without /openai/v1"),
        ({"endpoint": f"{_PROJECT}?api-version=v1"}, "no query"),
        ({"agent": ""}, "at least 1"),
        ({"api_key": "0123456789", "auth": _AUTH}, "'api_key' and 'auth' exclude each other"),
        ({"hosted": True, "agent_version": "3"}, "'hosted: true' and 'agent_version' exclude each other"),
        ({"conversation": True, "repeat_unknown": True}, "exclude each other"),
        ({"extra_body": {"model": "gpt"}}, "must not set 'model': the agent has it"),
        ({"extra_body": {"agent_reference": {}}}, "must not set 'agent_reference': the gateway decides it"),
        ({"model": "gpt"}, "Extra inputs are not permitted"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        factory.settings.model_validate({"endpoint": _PROJECT, "agent": "echo"} | values)


def read(text: str, **env: str) -> Any:
    kind, _, rest = text.partition(":")
    return SHORTHAND.read(Target(text, kind, rest, None, env, Path("/"), Path("/")))


_APPLICATION = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}


def test_a_target_names_a_project_and_an_agent() -> None:
    agent = read(f"foundry:{_PROJECT}#My Agent", FOUNDRY_API_KEY="k")
    assert agent.name == "My Agent"
    assert agent.settings == {
        "endpoint": _PROJECT,
        "agent": "My Agent",
        "api_key": EnvironmentValue("FOUNDRY_API_KEY"),
    }


def test_without_a_key_an_application_of_the_environment_is_used() -> None:
    auth = read(f"foundry:{_PROJECT}#echo", **_APPLICATION).settings["auth"]
    assert (auth["type"], auth["identity"], auth["client_secret"]) == (
        "entra",
        "client_secret",
        EnvironmentValue("AZURE_CLIENT_SECRET"),
    )
    assert factory.settings.model_validate(
        {
            "endpoint": _PROJECT,
            "agent": "echo",
            "auth": {**auth, "tenant_id": "t", "client_id": "c", "client_secret": "s"},
        }
    ).auth


def test_a_project_on_this_machine_needs_no_credentials() -> None:
    assert read("foundry:http://localhost:8088#echo").settings == {"endpoint": "http://localhost:8088", "agent": "echo"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("foundry:", "no address of a project"),
        ("foundry:echo", "no address of a project"),
        (f"foundry:{_PROJECT}", "names no agent"),
        (f"foundry:{_PROJECT}#echo", "needs credentials"),
    ],
)
def test_a_wrong_target_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(TargetProblem, match=words):
        read(text)
