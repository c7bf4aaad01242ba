"""`serve TARGET...`: from shorthands to the text of a configuration file. Law: a secret is named, never written down.

Where a configuration comes from: a file, or targets on the command line. Law: both go through the same loader, so that
both say what is wrong in the same words.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gateway.cli.console.exits import ExitCode, Stop
from gateway.config.dump import literal, written
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid, Problem, shown
from gateway.config.settings import NAME
from gateway.foundation.text import did_you_mean

_OLLAMA = "http://localhost:11434/v1"
_KEY = "OPENAI_API_KEY"
_KEY_REFERENCE = f"${{{_KEY}}}"
_NAME_LENGTH = 63
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Target:
    """One agent. `settings` are the keys of its type as the file writes them, `${...}` included."""

    name: str
    type: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Typed:
    """A target as it was typed: `[name=]kind:rest`, and where."""

    text: str
    name: str | None
    kind: str
    rest: str
    env: Mapping[str, str]
    base_dir: Path

    @property
    def unnamed(self) -> str:
        return self.text if self.name is None else self.text.partition("=")[2]

    def instead(self, unnamed: str) -> str:
        """The same with another target behind its name."""
        return unnamed if self.name is None else f"{self.name}={unnamed}"

    def refused(self, why: str) -> Stop:
        return Stop(ExitCode.USAGE, f"serve: {shown(self.text)} {why}")


@dataclass(frozen=True, slots=True)
class _Agent:
    """What a kind makes of a target. `called` is what its name is made of when none is given."""

    type: str
    called: str
    settings: dict[str, str] = field(default_factory=dict)


def read_targets(words: Sequence[str], env: Mapping[str, str], base_dir: Path) -> tuple[Target, ...]:
    """`base_dir` is the folder against which the configuration's relative paths resolve.

    Raises: Stop (2) for what is no target, Stop (78) for a key that is not there.
    """
    targets: dict[str, Target] = {}
    for text in words:
        found = _split(text, env, base_dir)
        target = _target(found)
        if target.name in targets:
            remedy = f"name one of them: another-name={found.unnamed}"
            raise Stop(ExitCode.USAGE, f"serve: two targets are called {target.name!r}; {remedy}")
        targets[target.name] = target
    return tuple(targets.values())


def configuration(targets: Sequence[Target], server: Mapping[str, object]) -> str:
    """The gateway.yaml of these targets; `server` are keys of that section."""
    lines = ["version: 1"]
    if server:
        lines += ["server:", *(f"  {_line(key, value)}" for key, value in server.items())]
    lines.append("agents:")
    for target in targets:
        lines += [f"  {written(target.name)}:", f"    type: {target.type}"]
        lines += [f"    {_line(key, value)}" for key, value in target.settings.items()]
    return "\n".join(lines) + "\n"


def _line(key: str, value: object) -> str:
    return f"{key}: {value if value == _KEY_REFERENCE else written(value)}"


def _split(text: str, env: Mapping[str, str], base_dir: Path) -> _Typed:
    name, equals, unnamed = text.partition("=")
    named = bool(equals) and ":" not in name
    kind, _, rest = (unnamed if named else text).partition(":")
    return _Typed(text, name if named else None, kind, rest, env, base_dir)


def _target(target: _Typed) -> Target:
    read = _KINDS.get(target.kind)
    if read is None:
        raise _unknown(target)
    agent = read(target)
    name = target.name
    if name is None:
        name = _NOT_IN_NAMES.sub("-", agent.called.lower()).strip("-")[:_NAME_LENGTH].rstrip("-")
        if not name:
            raise target.refused(f"gives no name that a URL could carry; write one in front: my-agent={target.text}")
    elif NAME.fullmatch(name) is None:
        rule = "a name has 1 to 63 of a-z, 0-9 and -, and does not begin with -: it is part of the agent's URL"
        raise target.refused(f"cannot be called {shown(name)}; {rule}")
    return Target(name, agent.type, agent.settings)


def _unknown(target: _Typed) -> Stop:
    unnamed, kind = target.unnamed, target.kind
    meant = did_you_mean(kind, _KINDS)
    if unnamed.endswith((".yaml", ".yml")):
        return target.refused(f"is no target; to serve a file, write: serve -c {shlex.quote(unnamed)}")
    if kind in {"http", "https"}:
        meant = "chat"
    elif ".py" in kind:
        meant = "python"
    elif meant is not None and unnamed != kind:
        unnamed = target.rest
    else:
        return target.refused(f"is no target; write one of {', '.join(_FORMS)}")
    return target.refused(f"is no target; did you mean {target.instead(f'{meant}:{unnamed}')!r}?")


# --- the kinds --------------------------------------------------------------------------------------------------------


def _openai(target: _Typed) -> _Agent:
    model = _model(target, "gpt-5.5")
    if not target.env.get(_KEY):
        remedy = f"set {_KEY}, as in: {_KEY}=sk-... a2a-gateway serve {shlex.quote(target.text)}"
        raise Stop(ExitCode.CONFIG_INVALID, f"serve: {shown(target.text)} needs the key of an OpenAI account; {remedy}")
    return _Agent("openai-responses", model, {"model": literal(model), "api_key": _KEY_REFERENCE})


def _ollama(target: _Typed) -> _Agent:
    model = _model(target, "llama3.3")
    return _Agent("openai-chat", model, {"model": literal(model), "base_url": _OLLAMA})


def _model(target: _Typed, example: str) -> str:
    if not target.rest:
        raise target.refused(
            f"names no model; write {target.instead(f'{target.kind}:MODEL')}, such as {target.kind}:{example}"
        )
    return target.rest


def _chat(target: _Typed) -> _Agent:
    url, _, model = target.rest.partition("#")
    if "://" not in url:
        meant = f"chat:http://{url or 'localhost:8000/v1'}#{model or 'MODEL'}"
        raise target.refused(f"has no address of a server; did you mean {target.instead(meant)!r}?")
    if not model:
        raise target.refused(f"names no model; write it behind the address: {target.instead(f'chat:{url}#MODEL')!r}")
    return _Agent("openai-chat", model, {"model": literal(model), "base_url": literal(url)})


def _python(target: _Typed) -> _Agent:
    source, _, name = target.rest.rpartition(":")
    if not source or not name:
        source = source or name or "./my_agent.py"
        raise target.refused(
            f"names no function; write it behind a colon: {target.instead(f'python:{source}:reply')!r}"
        )
    if not source.endswith(".py"):
        return _Agent("python", source.rpartition(".")[2], {"ref": literal(f"{source}:{name}")})
    path = source if Path(source).is_absolute() else os.path.relpath(source, target.base_dir)
    if not path.startswith((".", "/")):
        path = f"./{path}"
    return _Agent("python", Path(source).stem, {"ref": literal(f"{path}:{name}")})


_KINDS: Mapping[str, Callable[[_Typed], _Agent]] = {
    "openai": _openai,
    "ollama": _ollama,
    "chat": _chat,
    "python": _python,
}
_FORMS = ("openai:MODEL", "ollama:MODEL", "chat:URL#MODEL", "python:./file.py:name", "python:module:name")


COMMAND_LINE = "command line"


def read_file(file: Path, overrides: Mapping[str, object]) -> GatewayConfig:
    """Raises: ConfigInvalid."""
    return _load(_text(file), str(file), file.resolve().parent, overrides)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(file, f"is not UTF-8 text, from byte {error.start} on") from error
    except FileNotFoundError as error:
        hint = "name another with -c FILE, begin one with a2a-gateway init, or try without one: a2a-gateway demo"
        raise _unreadable(file, f"there is no such file; {hint}") from error
    except OSError as error:
        raise _unreadable(file, f"cannot be read: {(error.strerror or 'not readable').lower()}") from error


def _unreadable(file: Path, why: str) -> ConfigInvalid:
    return ConfigInvalid([Problem(str(file), None, None, "", why)])


def compose(targets: Sequence[str], flags: Mapping[str, object], folder: Path) -> str:
    """The text of the file, to lie in this folder, that serves these targets. `flags` are settings by dotted path.

    Raises: Stop.
    """
    server = {name.partition(".")[2]: value for name, value in flags.items()}
    return configuration(read_targets(targets, os.environ, folder), server)


def read_composed(text: str, flags: Mapping[str, object], folder: Path) -> GatewayConfig:
    """Raises: ConfigInvalid. Nobody has seen the text, so its lines are not told."""
    try:
        return _load(text, COMMAND_LINE, folder, flags)
    except ConfigInvalid as error:
        problems = [
            replace(problem, line=None, column=None) if problem.file == COMMAND_LINE else problem
            for problem in error.problems
        ]
        raise ConfigInvalid(problems) from error


def _load(text: str, source: str, folder: Path, overrides: Mapping[str, object]) -> GatewayConfig:
    return load(text, source=source, env=os.environ, resolver=Registry(), base_dir=folder, overrides=overrides)


def invalid(problems: Iterable[Problem]) -> Stop:
    return Stop(ExitCode.CONFIG_INVALID, "\n".join(str(problem) for problem in problems))


def check_free(file: Path) -> None:
    """Raises: Stop (2) when the file is there already."""
    if file.exists():
        remedy = "write over it with --force, or choose another name: --save FILE"
        raise Stop(ExitCode.USAGE, f"{file} is there already; {remedy}")


def save(text: str, file: Path) -> None:
    """Raises: Stop (2) when it cannot be written."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "not writable").lower()
        raise Stop(ExitCode.USAGE, f"{file} cannot be written: {reason}") from error
