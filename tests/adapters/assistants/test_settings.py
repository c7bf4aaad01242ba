"""Settings and targets: what cannot be meant is refused when it is read, and keys go where the service looks for them."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from adapters.assistants.adapter import assistants, foundry_classic
from adapters.assistants.settings import AssistantsSettings, FoundryClassicSettings
from adapters.assistants.targets import ASSISTANTS, FOUNDRY_CLASSIC
from gateway.ports.adapter import AnyAdapterFactory
from gateway.ports.targets import EnvironmentValue, Target, TargetAgent, TargetProblem
from tests.adapters.emulator_support import KEY

AZURE = "https://name.openai.azure.com/openai"
PROJECT = "https://name.services.ai.azure.com/api/projects/p"
FACTORIES: dict[str, AnyAdapterFactory] = {"assistants": assistants, "foundry-classic": foundry_classic}
SHORTHANDS = {"assistants": ASSISTANTS, "foundry-classic": FOUNDRY_CLASSIC}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"base_url": f"{AZURE}?api-version=1"}, "no query"),
        ({"assistant_id": ""}, "at least 1"),
        ({"api_key": KEY, "auth": {"type": "api_key", "key": KEY}}, "'api_key' and 'auth' exclude each other"),
        ({"extra_body": {"tools": []}}, "extra_body must not set 'tools'"),
        ({"extra_body": {"stream": False}}, "extra_body must not set 'stream'"),
        ({"model": "m"}, "Extra inputs are not permitted"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        AssistantsSettings.model_validate({"base_url": AZURE, "assistant_id": "asst_1"} | values)


BETA = {"OpenAI-Beta": "assistants=v2"}


def test_a_key_is_in_the_header_that_the_service_reads() -> None:
    azure = AssistantsSettings(base_url=AZURE, assistant_id="asst_1", api_version="v", api_key=SecretStr(KEY))
    openai = AssistantsSettings(base_url="https://a.example/v1", assistant_id="asst_1", api_key=SecretStr(KEY))
    project = FoundryClassicSettings(endpoint=PROJECT, agent_id="asst_1", api_key=SecretStr(KEY))
    assert azure.place.headers == BETA | {"api-key": KEY}
    assert openai.place.headers == BETA | {"Authorization": f"Bearer {KEY}"}
    assert project.place.headers == {"api-key": KEY}
    assert AssistantsSettings(base_url=AZURE, assistant_id="asst_1").place.headers == BETA


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "api_key", "key": KEY, "header": "Ocp-Apim-Subscription-Key"},
        {"type": "oauth2", "token_url": "https://login.example/token", "client_id": "c", "client_secret": KEY},
    ],
    ids=lambda auth: str(auth["type"]),
)
def test_no_error_quotes_a_secret(auth: dict[str, str]) -> None:
    project = FoundryClassicSettings.model_validate({"endpoint": PROJECT, "agent_id": "asst_1", "auth": auth})
    assert KEY in list(project.secrets())


def read(text: str, **env: str) -> TargetAgent:
    kind, _, rest = text.partition(":")
    agent = SHORTHANDS[kind].read(Target(text, kind, rest, None, env, Path("/"), Path("/")))
    assert agent is not None
    return agent


APPLICATION = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}
MEANINGS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    f"assistants:{AZURE}?api-version=v#asst_1": (
        {"AZURE_OPENAI_API_KEY": "k"},
        {
            "base_url": AZURE,
            "assistant_id": "asst_1",
            "api_version": "v",
            "api_key": EnvironmentValue("AZURE_OPENAI_API_KEY"),
        },
    ),
    "assistants:http://127.0.0.1:9300/v1#asst_1": (
        {},
        {"base_url": "http://127.0.0.1:9300/v1", "assistant_id": "asst_1"},
    ),
    f"foundry-classic:{PROJECT}#asst_1": (
        {"FOUNDRY_API_KEY": "k", **APPLICATION},
        {"endpoint": PROJECT, "agent_id": "asst_1", "api_key": EnvironmentValue("FOUNDRY_API_KEY")},
    ),
    f"foundry-classic:{PROJECT}#asst_2": (
        APPLICATION,
        {
            "endpoint": PROJECT,
            "agent_id": "asst_2",
            "auth": {
                "type": "entra",
                "identity": "client_secret",
                "scope": "https://ai.azure.com/.default",
                "tenant_id": EnvironmentValue("AZURE_TENANT_ID"),
                "client_id": EnvironmentValue("AZURE_CLIENT_ID"),
                "client_secret": EnvironmentValue("AZURE_CLIENT_SECRET"),
            },
        },
    ),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_a_target_names_a_service_and_an_assistant(text: str) -> None:
    env, settings = MEANINGS[text]
    assert read(text, **env) == TargetAgent(settings.get("assistant_id") or settings["agent_id"], settings)


WRONG = {
    "assistants:asst_1": "has no address of a service; write 'assistants:https://RESOURCE.openai.azure.com/openai"
    "?api-version=2025-01-01-preview#asst_1'",
    f"assistants:{AZURE}": f"names no assistant; write its id behind the address: 'assistants:{AZURE}#asst_1'",
    f"assistants:{AZURE}#a": "needs credentials for the service; set AZURE_OPENAI_API_KEY, as in: "
    f"AZURE_OPENAI_API_KEY=... a2a-gateway serve 'assistants:{AZURE}#a'",
    f"foundry-classic:{PROJECT}#a": "needs credentials for the service; set FOUNDRY_API_KEY, or AZURE_TENANT_ID, "
    f"AZURE_CLIENT_ID, AZURE_CLIENT_SECRET, as in: FOUNDRY_API_KEY=... a2a-gateway serve 'foundry-classic:{PROJECT}#a'",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_target_says_what_to_write(text: str) -> None:
    with pytest.raises(TargetProblem) as caught:
        read(text)
    assert caught.value.text == WRONG[text]
