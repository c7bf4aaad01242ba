"""`serve assistants:URL#ASSISTANT` and `serve foundry-classic:URL#AGENT`."""

import shlex
from urllib.parse import parse_qs, urlsplit

from gateway.ports.targets import (
    EnvironmentValue,
    Shorthand,
    Target,
    TargetAgent,
    TargetForm,
    TargetProblem,
    TargetSetting,
)

_AZURE_KEY = "AZURE_OPENAI_API_KEY"
_FOUNDRY_KEY = "FOUNDRY_API_KEY"
_AZURE = "https://RESOURCE.openai.azure.com/openai?api-version=2025-01-01-preview"
_PROJECT = "https://NAME.services.ai.azure.com/api/projects/PROJECT"
_SCOPE = "https://ai.azure.com/.default"
_APPLICATION = {"tenant_id": "AZURE_TENANT_ID", "client_id": "AZURE_CLIENT_ID", "client_secret": "AZURE_CLIENT_SECRET"}


def _assistant(target: Target) -> TargetAgent:
    address, name = _split(target, _AZURE)
    url, _, query = address.partition("?")
    settings: dict[str, TargetSetting] = {"base_url": url, "assistant_id": name}
    for version in parse_qs(query).get("api-version", [])[:1]:
        settings["api_version"] = version
    if target.env.get(_AZURE_KEY):
        settings["api_key"] = EnvironmentValue(_AZURE_KEY)
    elif _is_remote(address):
        raise _lacking(target, _AZURE_KEY, f"set {_AZURE_KEY}")
    return TargetAgent(name, settings)


def _agent(target: Target) -> TargetAgent:
    endpoint, name = _split(target, _PROJECT)
    settings: dict[str, TargetSetting] = {"endpoint": endpoint, "agent_id": name}
    if target.env.get(_FOUNDRY_KEY):
        settings["api_key"] = EnvironmentValue(_FOUNDRY_KEY)
    elif all(target.env.get(variable) for variable in _APPLICATION.values()):
        application = {field: EnvironmentValue(variable) for field, variable in _APPLICATION.items()}
        settings["auth"] = {"type": "entra", "identity": "client_secret", "scope": _SCOPE, **application}
    elif _is_remote(endpoint):
        raise _lacking(target, _FOUNDRY_KEY, f"set {_FOUNDRY_KEY}, or {', '.join(_APPLICATION.values())}")
    return TargetAgent(name, settings)


def _split(target: Target, example: str) -> tuple[str, str]:
    """Address and id. Raises: TargetProblem."""
    address, _, name = target.rest.partition("#")
    if "://" not in address:
        form = target.spelt(f"{target.kind}:{example}#{name or 'asst_1'}")
        raise TargetProblem(f"has no address of a service; write {form!r}")
    if not name:
        form = target.spelt(f"{target.kind}:{address}#asst_1")
        raise TargetProblem(f"names no assistant; write its id behind the address: {form!r}")
    return address, name


def _is_remote(address: str) -> bool:
    return urlsplit(address).scheme == "https"


def _lacking(target: Target, variable: str, remedy: str) -> TargetProblem:
    command = f"{variable}=... a2a-gateway serve {shlex.quote(target.text)}"
    return TargetProblem(f"needs credentials for the service; {remedy}, as in: {command}", lacking=True)


ASSISTANTS = Shorthand(
    (TargetForm("assistants:URL#ASSISTANT", f"an assistant of Azure OpenAI; the key is in {_AZURE_KEY}"),), _assistant
)
FOUNDRY_CLASSIC = Shorthand(
    (TargetForm("foundry-classic:URL#AGENT", f"a classic agent of Foundry; the key is in {_FOUNDRY_KEY}"),), _agent
)
