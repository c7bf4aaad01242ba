"""Targets of the command line, and the file that says the same.

Law: the installed adapters say what targets there are and what they mean; a secret is referenced, never written.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from gateway.cli.console.output import PROGRAM, ExitCode, Stop
from gateway.config.dump import escape_references, inline
from gateway.config.plugins import InstalledShorthand
from gateway.config.problems import display
from gateway.config.settings import NAME
from gateway.foundation.text import did_you_mean
from gateway.ports.targets import EnvironmentValue, Target, TargetAgent, TargetForm, TargetProblem, TargetSetting

_NAME_LENGTH = 63
_OWN_NAME = TargetForm("name=TARGET", "one of these under a name of its own")

Agents: TypeAlias = Mapping[str, Mapping[str, TargetSetting]]
"""For the name of each agent, its keys, `type` included."""


def target_lines(installed: Iterable[InstalledShorthand]) -> list[str]:
    """For each form of a target what it serves, in columns."""
    forms = [*sorted(_forms(installed), key=lambda form: form.text), _OWN_NAME]
    column = max(len(form.text) for form in forms) + 3
    return [f"{form.text:{column}}{form.help}" for form in forms]


def read_targets(
    words: Sequence[str], env: Mapping[str, str], here: Path, folder: Path, installed: Sequence[InstalledShorthand]
) -> Agents:
    """The agents by their names. `here` is the folder of the command, `folder` that of the configuration.

    Raises: Stop (2) for a target of no adapter, or of several; Stop (78) for one that lacks something, such as a key.
    """
    agents: dict[str, Mapping[str, TargetSetting]] = {}
    for text in words:
        before, equals, after = text.partition("=")
        name, unnamed = (before, after) if equals and ":" not in before else (None, text)
        kind, _, rest = unnamed.partition(":")
        target = Target(text, kind, rest, name, env, here, folder)
        kept, agent = _meaning(target, unnamed, installed)
        called = _name(target, agent.name)
        if called in agents:
            remedy = f"name one of them: another-name={unnamed}"
            raise Stop(ExitCode.USAGE, f"serve: two targets are called {called!r}; {remedy}")
        agents[called] = {"type": kept, **agent.settings}
    return agents


def configuration(agents: Agents, server: Mapping[str, object]) -> str:
    """The gateway.yaml of these agents; `server` are keys of that section."""
    lines = ["version: 1"]
    if server:
        lines += ["server:", *(f"  {key}: {inline(value)}" for key, value in server.items())]
    lines.append("agents:")
    for name, settings in agents.items():
        lines += [f"  {inline(name)}:", *(f"    {key}: {_written(value)}" for key, value in settings.items())]
    return "\n".join(lines) + "\n"


def _written(value: TargetSetting) -> str:
    # Inside { } and [ ] a reference stands in quotes.
    return f"${{{value.variable}}}" if isinstance(value, EnvironmentValue) else inline(_literal(value))


def _literal(value: TargetSetting) -> object:
    match value:
        case EnvironmentValue(variable=variable):
            return f"${{{variable}}}"
        case str():
            return escape_references(value)
        case Mapping():
            return {key: _literal(below) for key, below in value.items()}
        case Sequence():
            return [_literal(below) for below in value]
        case _:
            return value


def _forms(installed: Iterable[InstalledShorthand]) -> list[TargetForm]:
    return [form for each in installed if each.shorthand is not None for form in each.shorthand.forms]


def _meaning(target: Target, unnamed: str, installed: Sequence[InstalledShorthand]) -> tuple[str, TargetAgent]:
    """The type of the agent, and the agent. Raises: Stop."""
    found: list[tuple[InstalledShorthand, TargetAgent]] = []
    problem: TargetProblem | None = None
    for each in installed:
        shorthand = each.shorthand
        if shorthand is None or all(form.kind != target.kind for form in shorthand.forms):
            continue
        try:
            agent = shorthand.read(target)
        except TargetProblem as error:
            problem = problem or error
        except ValueError as error:  # of `urlsplit`
            problem = problem or TargetProblem(f"cannot be read: {error}")
        else:
            found += [] if agent is None else [(each, agent)]
    match found:
        case [(each, agent)]:
            return each.type, agent
        case []:
            raise _unknown(target, unnamed, installed) if problem is None else _refused(target, problem) from problem
        case several:
            claims = " and ".join(f"{each.type!r} of {each.package}" for each, _ in several)
            text = f"is a target of several adapters, {claims}; keep one of them, or write a file: {PROGRAM} init"
            raise _refused(target, TargetProblem(text))


def _name(target: Target, default: str) -> str:
    """The name of the agent. Raises: Stop (2)."""
    if target.name is not None:
        if NAME.fullmatch(target.name) is None:
            rule = "a name has 1 to 63 of a-z, 0-9 and -, and does not begin with -: it is part of the agent's URL"
            raise _refused(target, TargetProblem(f"cannot be called {display(target.name)}; {rule}"))
        return target.name
    name = re.sub(r"[^a-z0-9]+", "-", default.lower()).strip("-")[:_NAME_LENGTH].rstrip("-")
    if not name:
        text = f"gives no name that a URL could carry; write one in front: my-agent={target.text}"
        raise _refused(target, TargetProblem(text))
    return name


def _unknown(target: Target, unnamed: str, installed: Sequence[InstalledShorthand]) -> Stop:
    if unnamed.endswith((".yaml", ".yml")):
        return _refused(target, TargetProblem(f"is no target; to serve a file, write: serve -c {shlex.quote(unnamed)}"))
    forms = _forms(installed)
    meant = [f"{form.kind}:{unnamed}" for form in forms if form.resembles(unnamed)]
    close = did_you_mean(target.kind, (form.kind for form in forms)) if unnamed != target.kind else None
    if not meant and close not in (None, target.kind):
        meant = [f"{close}:{target.rest}"]
    if meant:
        remedy = f"did you mean {' or '.join(repr(target.spelt(each)) for each in meant)}?"
    else:
        remedy = f"write one of {', '.join(sorted(form.text for form in forms))}"
        unusable = [
            f"those of {each.type!r} cannot be used: {each.problem}" for each in installed if not each.shorthand
        ]
        remedy = "; ".join((remedy, *unusable))
    return _refused(target, TargetProblem(f"is no target; {remedy}"))


def _refused(target: Target, problem: TargetProblem) -> Stop:
    code = ExitCode.CONFIG_INVALID if problem.lacking else ExitCode.USAGE
    return Stop(code, f"serve: {display(target.text)} {problem.text}")
