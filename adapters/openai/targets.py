"""Targets of `serve` that name a model."""

from gateway.ports.targets import Target, TargetProblem


def named_model(target: Target, example: str) -> str:
    """The rest of the target. Raises: TargetProblem where it is empty."""
    if not target.rest:
        form = target.spelt(f"{target.kind}:MODEL")
        raise TargetProblem(f"names no model; write {form}, such as {target.kind}:{example}")
    return target.rest
