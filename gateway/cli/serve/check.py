"""`check` and `schema`: a configuration, without serving it."""

import asyncio
import sys
from pathlib import Path

from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.terminal import json_text, visible
from gateway.cli.serve.probe import probe_all
from gateway.cli.serve.problems import build_problems, with_positions
from gateway.cli.serve.sources import invalid, load_file
from gateway.config.dump import dump
from gateway.config.json_schema import schema
from gateway.config.plugins import Registry
from gateway.config.problems import Problem

_PRECEDENCE = (ExitCode.UNREACHABLE, ExitCode.NOT_AUTHORISED, ExitCode.CONFIG_INVALID, ExitCode.TRY_AGAIN)
"""The first of these that a probe found is the exit code."""


def check_file(file: Path, *, live: bool, show: bool) -> None:
    """Raises: Stop (78) with a line for each problem; with `live` also Stop (69, 75, 77)."""
    config = load_file(file)
    problems = asyncio.run(build_problems(str(file), config))
    if problems:
        raise invalid(with_positions(file, problems))
    if show:
        sys.stdout.write(visible(dump(config)))
    # With --print, standard output holds a configuration and nothing else.
    verdict = sys.stderr if show else sys.stdout
    verdict.write(visible(f"{file}: ok; agents: {', '.join(config.agents)}\n"))
    if live:
        findings = asyncio.run(probe_all(config))
        verdict.writelines(visible(f"{file}: {each.path}: {each.text}\n") for each in findings if not each.code)
        failed = [each for each in findings if each.code]
        if failed:
            code = min((each.code for each in failed), key=_PRECEDENCE.index)
            wrong = [Problem(str(file), None, None, each.path, each.text) for each in failed]
            raise Stop(code, "\n".join(str(problem) for problem in with_positions(file, wrong)))


def print_schema() -> None:
    sys.stdout.write(f"{json_text(schema(Registry()), indent=2)}\n")
