"""`serve echo:URL`."""

from gateway.ports.targets import Shorthand, Target, TargetAgent, TargetForm, TargetProblem


def from_target(target: Target) -> TargetAgent:
    if not target.rest:
        raise TargetProblem(f"names no address; write {target.spelt('echo:URL')}")
    return TargetAgent("echo", {"url": target.rest})


SHORTHAND = Shorthand((TargetForm("echo:URL", "a service that says everything again"),), from_target)
