"""The sources of a configuration: a file, or targets on the command line, which are shorthands for the text of a file.

Law: both go through the same loader, which reports the same mistake in the same words.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gateway.cli.console.output import ExitCode, Stop, reason_of, visible
from gateway.cli.serve.targets import configuration, read_targets
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid, Problem
from gateway.config.warnings import warnings

COMMAND_LINE = "command line"


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
    agents = read_targets(targets, os.environ, Path.cwd(), folder, Registry().shorthands())
    return configuration(agents, server)


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
