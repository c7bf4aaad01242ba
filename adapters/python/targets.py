"""`serve python:./file.py:name` and `serve python:module:name`."""

from pathlib import Path

from gateway.ports.targets import Shorthand, Target, TargetAgent, TargetForm, TargetProblem


def _read(target: Target) -> TargetAgent:
    source, _, name = target.rest.rpartition(":")
    if not source or not name:
        form = target.spelt(f"python:{source or name or './my_agent.py'}:reply")
        raise TargetProblem(f"names no function; write it behind a colon: {form!r}")
    if not source.endswith(".py"):
        return TargetAgent(source.rpartition(".")[2], {"ref": f"{source}:{name}"})
    path = target.path(source)
    if not path.startswith((".", "/")):
        path = f"./{path}"
    return TargetAgent(Path(source).stem, {"ref": f"{path}:{name}"})


def _begins_with_a_file(text: str) -> bool:
    return ".py" in text.partition(":")[0]


SHORTHAND = Shorthand(
    (
        TargetForm("python:./file.py:name", "a function of yours", _begins_with_a_file),
        TargetForm("python:module:name", "a function of a module that is installed"),
    ),
    _read,
)
