"""The sources of a configuration: a file, or targets on the command line, which are shorthands for the text of a file.

Law: both go through the same loader, which reports the same mistake in the same words; a secret is referenced, never written.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from gateway.cli.console.output import ExitCode, Stop, reason_of, visible
from gateway.config.dump import escape_references, inline
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid, Problem, display
from gateway.config.settings import NAME
from gateway.config.warnings import warnings
from gateway.foundation.text import did_you_mean

COMMAND_LINE = "command line"
_KEY = "OPENAI_API_KEY"
_KEY_REFERENCE = f"${{{_KEY}}}"
_NAME_LENGTH = 63


Settings: TypeAlias = dict[str, str]
"""The keys of an agent as the file writes them, `${...}` included."""


@dataclass(frozen=True, slots=True)
class _Shorthand:
    """`[name=]kind:rest` as it was typed, with the environment and the folder that it refers to."""

    text: str
    name: str | None
    unnamed: str
    env: Mapping[str, str]
    base_dir: Path

    @property
    def kind(self) -> str:
        return self.unnamed.partition(":")[0]

    @property
    def rest(self) -> str:
        return self.unnamed.partition(":")[2]

    def with_target(self, unnamed: str) -> str:
        """The shorthand with another target after its name."""
        return unnamed if self.name is None else f"{self.name}={unnamed}"

    def refused(self, problem: str) -> Stop:
        return Stop(ExitCode.USAGE, f"serve: {display(self.text)} {problem}")


def read_file(file: Path, overrides: Mapping[str, object]) -> GatewayConfig:
    """Raises: ConfigInvalid."""
    return _load(_text(file), str(file), file.resolve().parent, overrides)


def load_file(file: Path) -> GatewayConfig:
    """Raises: Stop (78)."""
    try:
        return read_file(file, {})
    except ConfigInvalid as error:
        raise invalid(error.problems) from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        match error:
            case UnicodeDecodeError():
                why = f"is not UTF-8 text, from byte {error.start} on"
            case FileNotFoundError():
                hint = (
                    "name another with -c FILE, begin one with a2a-gateway init, or try without one: a2a-gateway demo"
                )
                why = f"there is no such file; {hint}"
            case _:
                why = f"cannot be read: {reason_of(error)}"
        raise ConfigInvalid([Problem(str(file), None, None, "", why)]) from error


def compose(targets: Sequence[str], flags: Mapping[str, object], folder: Path) -> str:
    """The text of the file, in this folder, that serves these targets. `flags` are settings by dotted path. Raises: Stop."""
    server = {name.removeprefix("server."): value for name, value in flags.items() if name.startswith("server.")}
    return configuration(read_targets(targets, os.environ, folder), server)


def read_composed(text: str, flags: Mapping[str, object], folder: Path) -> GatewayConfig:
    """Raises: ConfigInvalid, without the lines of a text that the user has not seen."""
    try:
        return _load(text, COMMAND_LINE, folder, flags)
    except ConfigInvalid as error:
        problems = [
            replace(problem, line=None, column=None) if problem.file == COMMAND_LINE else problem
            for problem in error.problems
        ]
        raise ConfigInvalid(problems) from error


def _load(text: str, source: str, folder: Path, overrides: Mapping[str, object]) -> GatewayConfig:
    return load(text, source=source, env=os.environ, plugins=Registry(), base_dir=folder, overrides=overrides)


def invalid(problems: Iterable[Problem]) -> Stop:
    return Stop(ExitCode.CONFIG_INVALID, "\n".join(str(problem) for problem in problems))


def doubts(config: GatewayConfig) -> Iterator[Problem]:
    """What is hardly meant as it is written."""
    return warnings(config, os.environ, Registry())


def warn(problems: Iterable[Problem]) -> None:
    for problem in problems:
        sys.stderr.write(visible(f"warning: {problem}\n"))


def read_targets(words: Sequence[str], env: Mapping[str, str], base_dir: Path) -> dict[str, Settings]:
    """The agents by their names. Relative paths of the configuration resolve against `base_dir`.

    Raises: Stop (2) for an unknown form, Stop (78) for a missing key.
    """
    targets: dict[str, Settings] = {}
    for text in words:
        name, equals, after = text.partition("=")
        named = bool(equals) and ":" not in name
        unnamed = after if named else text
        agent, settings = _agent(_Shorthand(text, name if named else None, unnamed, env, base_dir))
        if agent in targets:
            remedy = f"name one of them: another-name={unnamed}"
            raise Stop(ExitCode.USAGE, f"serve: two targets are called {agent!r}; {remedy}")
        targets[agent] = settings
    return targets


def configuration(agents: Mapping[str, Settings], server: Mapping[str, object]) -> str:
    """The gateway.yaml of these agents; `server` are keys of that section."""
    lines = ["version: 1"]
    if server:
        lines += ["server:", *(f"  {_line(key, value)}" for key, value in server.items())]
    lines.append("agents:")
    for name, settings in agents.items():
        lines += [f"  {inline(name)}:", *(f"    {_line(key, value)}" for key, value in settings.items())]
    return "\n".join(lines) + "\n"


def _line(key: str, value: object) -> str:
    return f"{key}: {value if value == _KEY_REFERENCE else inline(value)}"


def _agent(target: _Shorthand) -> tuple[str, Settings]:
    read = _KINDS.get(target.kind)
    if read is None:
        raise _unknown(target)
    default_name, settings = read(target)
    name = target.name
    if name is None:
        name = re.sub(r"[^a-z0-9]+", "-", default_name.lower()).strip("-")[:_NAME_LENGTH].rstrip("-")
        if not name:
            raise target.refused(f"gives no name that a URL could carry; write one in front: my-agent={target.text}")
    elif NAME.fullmatch(name) is None:
        rule = "a name has 1 to 63 of a-z, 0-9 and -, and does not begin with -: it is part of the agent's URL"
        raise target.refused(f"cannot be called {display(name)}; {rule}")
    return name, settings


def _unknown(target: _Shorthand) -> Stop:
    unnamed, kind = target.unnamed, target.kind
    suggestion = did_you_mean(kind, _KINDS)
    if unnamed.endswith((".yaml", ".yml")):
        return target.refused(f"is no target; to serve a file, write: serve -c {shlex.quote(unnamed)}")
    if kind in {"http", "https"}:
        suggestion = "chat"
    elif ".py" in kind:
        suggestion = "python"
    elif suggestion is not None and unnamed != kind:
        unnamed = target.rest
    else:
        return target.refused(f"is no target; write one of {', '.join(_FORMS)}")
    return target.refused(f"is no target; did you mean {target.with_target(f'{suggestion}:{unnamed}')!r}?")


def _openai(target: _Shorthand) -> tuple[str, Settings]:
    model = _model(target, "gpt-5.5")
    if not target.env.get(_KEY):
        remedy = f"set {_KEY}, as in: {_KEY}=sk-... a2a-gateway serve {shlex.quote(target.text)}"
        raise Stop(
            ExitCode.CONFIG_INVALID, f"serve: {display(target.text)} needs the key of an OpenAI account; {remedy}"
        )
    return model, {"type": "openai-responses", "model": escape_references(model), "api_key": _KEY_REFERENCE}


def _ollama(target: _Shorthand) -> tuple[str, Settings]:
    model = _model(target, "llama3.3")
    return model, {"type": "openai-chat", "model": escape_references(model), "base_url": "http://localhost:11434/v1"}


def _model(target: _Shorthand, example: str) -> str:
    if not target.rest:
        raise target.refused(
            f"names no model; write {target.with_target(f'{target.kind}:MODEL')}, such as {target.kind}:{example}"
        )
    return target.rest


def _chat(target: _Shorthand) -> tuple[str, Settings]:
    url, _, model = target.rest.partition("#")
    if "://" not in url:
        suggestion = f"chat:http://{url or 'localhost:8000/v1'}#{model or 'MODEL'}"
        raise target.refused(f"has no address of a server; did you mean {target.with_target(suggestion)!r}?")
    if not model:
        raise target.refused(
            f"names no model; write it behind the address: {target.with_target(f'chat:{url}#MODEL')!r}"
        )
    return model, {"type": "openai-chat", "model": escape_references(model), "base_url": escape_references(url)}


def _python(target: _Shorthand) -> tuple[str, Settings]:
    source, _, name = target.rest.rpartition(":")
    if not source or not name:
        source = source or name or "./my_agent.py"
        raise target.refused(
            f"names no function; write it behind a colon: {target.with_target(f'python:{source}:reply')!r}"
        )
    if not source.endswith(".py"):
        return source.rpartition(".")[2], {"type": "python", "ref": escape_references(f"{source}:{name}")}
    path = source if Path(source).is_absolute() else os.path.relpath(source, target.base_dir)
    if not path.startswith((".", "/")):
        path = f"./{path}"
    return Path(source).stem, {"type": "python", "ref": escape_references(f"{path}:{name}")}


_KINDS: Mapping[str, Callable[[_Shorthand], tuple[str, Settings]]] = {
    "openai": _openai,
    "ollama": _ollama,
    "chat": _chat,
    "python": _python,
}
_FORMS = ("openai:MODEL", "ollama:MODEL", "chat:URL#MODEL", "python:./file.py:name", "python:module:name")
