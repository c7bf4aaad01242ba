"""`serve anthropic:MODEL` and `serve messages:URL#MODEL`."""

import shlex

from gateway.ports.targets import EnvironmentValue, Shorthand, Target, TargetAgent, TargetForm, TargetProblem

_KEY = "ANTHROPIC_API_KEY"


def _read(target: Target) -> TargetAgent:
    return _of_anthropic(target) if target.kind == "anthropic" else _at_server(target)


def _of_anthropic(target: Target) -> TargetAgent:
    if not target.rest:
        form = target.spelt("anthropic:MODEL")
        raise TargetProblem(f"names no model; write {form}, such as anthropic:claude-sonnet-4-5")
    if not target.env.get(_KEY):
        remedy = f"set {_KEY}, as in: {_KEY}=sk-ant-... a2a-gateway serve {shlex.quote(target.text)}"
        raise TargetProblem(f"needs the key of an Anthropic account; {remedy}", lacking=True)
    return TargetAgent(target.rest, {"model": target.rest, "api_key": EnvironmentValue(_KEY)})


def _at_server(target: Target) -> TargetAgent:
    url, _, model = target.rest.partition("#")
    if "://" not in url:
        suggestion = target.spelt(f"messages:http://{url or 'localhost:8000'}#{model or 'MODEL'}")
        raise TargetProblem(f"has no address of a server; did you mean {suggestion!r}?")
    if not model:
        form = target.spelt(f"messages:{url}#MODEL")
        raise TargetProblem(f"names no model; write it behind the address: {form!r}")
    return TargetAgent(model, {"model": model, "base_url": url})


SHORTHAND = Shorthand(
    (
        TargetForm("anthropic:MODEL", f"Anthropic; the key is in {_KEY}"),
        TargetForm("messages:URL#MODEL", "any server with Anthropic's Messages API"),
    ),
    _read,
)
