"""`serve openai:MODEL`."""

import shlex

from adapters.openai.targets import named_model
from gateway.ports.targets import EnvironmentValue, Shorthand, Target, TargetAgent, TargetForm, TargetProblem

_KEY = "OPENAI_API_KEY"


def _read(target: Target) -> TargetAgent:
    model = named_model(target, "gpt-5.5")
    if not target.env.get(_KEY):
        remedy = f"set {_KEY}, as in: {_KEY}=sk-... a2a-gateway serve {shlex.quote(target.text)}"
        raise TargetProblem(f"needs the key of an OpenAI account; {remedy}", lacking=True)
    return TargetAgent(model, {"model": model, "api_key": EnvironmentValue(_KEY)})


SHORTHAND = Shorthand((TargetForm("openai:MODEL", f"OpenAI; the key is in {_KEY}"),), _read)
