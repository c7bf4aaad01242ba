"""`serve foundry:URL#AGENT`."""

import shlex
from urllib.parse import urlsplit

from gateway.ports.targets import (
    EnvironmentValue,
    Shorthand,
    Target,
    TargetAgent,
    TargetForm,
    TargetProblem,
    TargetSetting,
)

_KEY = "FOUNDRY_API_KEY"
_SCOPE = "https://ai.azure.com/.default"
_APPLICATION = {"tenant_id": "AZURE_TENANT_ID", "client_id": "AZURE_CLIENT_ID", "client_secret": "AZURE_CLIENT_SECRET"}
_EXAMPLE = "https://NAME.services.ai.azure.com/api/projects/PROJECT"


def _read(target: Target) -> TargetAgent:
    endpoint, _, agent = target.rest.partition("#")
    if "://" not in endpoint:
        suggestion = target.spelt(f"foundry:{_EXAMPLE}#{agent or 'AGENT'}")
        raise TargetProblem(f"has no address of a project; write {suggestion!r}")
    if not agent:
        suggestion = target.spelt(f"foundry:{endpoint}#AGENT")
        raise TargetProblem(f"names no agent; write it behind the address: {suggestion!r}")
    return TargetAgent(agent, {"endpoint": endpoint, "agent": agent, **_credentials(target, endpoint)})


def _credentials(target: Target, endpoint: str) -> dict[str, TargetSetting]:
    if target.env.get(_KEY):
        return {"api_key": EnvironmentValue(_KEY)}
    if all(target.env.get(variable) for variable in _APPLICATION.values()):
        application = {field: EnvironmentValue(variable) for field, variable in _APPLICATION.items()}
        return {"auth": {"type": "entra", "identity": "client_secret", "scope": _SCOPE, **application}}
    if urlsplit(endpoint).scheme == "https":
        command = f"{_KEY}=... a2a-gateway serve {shlex.quote(target.text)}"
        remedy = f"set {_KEY}, or {', '.join(_APPLICATION.values())}, as in: {command}"
        raise TargetProblem(f"needs credentials for the project; {remedy}", lacking=True)
    return {}


def _is_project(text: str) -> bool:
    return "/api/projects/" in text


SHORTHAND = Shorthand(
    (TargetForm("foundry:URL#AGENT", f"an agent of a Foundry project; the key is in {_KEY}", _is_project),), _read
)
