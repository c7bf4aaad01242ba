"""`serve copilot:URL` and `serve directline:URL`."""

import re
import shlex

from gateway.ports.targets import (
    EnvironmentValue,
    Shorthand,
    Target,
    TargetAgent,
    TargetForm,
    TargetProblem,
    TargetSetting,
)

_OF_CHANNEL = "DIRECT_LINE_SECRET"
_OF_AGENT = "COPILOT_STUDIO_TOKEN"
_EXAMPLE = "https://ENVIRONMENT.environment.api.powerplatform.com/..."
_TOKEN_ENDPOINT = re.compile(r"/directline/token(\?|$)")
_SCHEMA = re.compile(r"/(?:bots|botsbyschema)/([^/?]+)")
_NAME = "bot"


def _read(target: Target) -> TargetAgent:
    return _line(target) if target.kind == "directline" else _agent(target)


def _line(target: Target) -> TargetAgent:
    if target.rest and "://" not in target.rest:
        raise TargetProblem(f"has no address of a service; did you mean {target.spelt('directline:')!r}?")
    settings: dict[str, TargetSetting] = {"secret": _from_environment(target, _OF_CHANNEL, "the secret of the channel")}
    if target.rest:
        settings["url"] = target.rest
    return TargetAgent(_NAME, {"direct_line": settings})


def _agent(target: Target) -> TargetAgent:
    url = target.rest
    if "://" not in url:
        suggestion = target.spelt(f"copilot:{_EXAMPLE}")
        raise TargetProblem(f"has no address; write that of the token endpoint or of the agent: {suggestion!r}")
    found = _SCHEMA.search(url)
    name = found[1] if found else _NAME
    if _TOKEN_ENDPOINT.search(url):
        return TargetAgent(name, {"direct_line": {"token_endpoint": url}})
    token = _from_environment(target, _OF_AGENT, "a token for the Power Platform API")
    return TargetAgent(name, {"direct_to_engine": {"url": url, "token": token}})


def _from_environment(target: Target, variable: str, what: str) -> EnvironmentValue:
    if not target.env.get(variable):
        remedy = f"set {variable}, as in: {variable}=... a2a-gateway serve {shlex.quote(target.text)}"
        raise TargetProblem(f"needs {what}; {remedy}", lacking=True)
    return EnvironmentValue(variable)


SHORTHAND = Shorthand(
    (
        TargetForm("copilot:URL", f"Copilot Studio, by its token endpoint or connection string ({_OF_AGENT})"),
        TargetForm("directline:URL", f"a bot behind Direct Line; the secret is in {_OF_CHANNEL}"),
    ),
    _read,
)
