"""`check` and `schema`: a configuration, without serving it."""

import asyncio
import sys
from pathlib import Path

from gateway.cli.assembling import located, wrong_parts
from gateway.cli.exits import ExitCode, Stop
from gateway.cli.probing import probe_all
from gateway.cli.sources import invalid, read_file
from gateway.cli.terminal import json_text, visible
from gateway.config_printing import printed
from gateway.config_problem import ConfigInvalid, Problem
from gateway.config_schema import schema
from gateway.registry import Registry


def check_file(file: Path, *, live: bool, show: bool) -> int:
    """Raises: Stop (78) with every problem, one a line; `live` also Stop (69, 75, 77) for a backend that cannot be used."""
    try:
        config = read_file(file, {})
    except ConfigInvalid as error:
        raise invalid(error.problems) from error
    problems = asyncio.run(wrong_parts(str(file), config))
    if problems:
        raise invalid(located(file, problems))
    if show:
        sys.stdout.write(visible(printed(config)))
    # What is printed is a configuration and nothing else.
    beside = sys.stderr if show else sys.stdout
    beside.write(visible(f"{file}: ok; agents: {', '.join(config.agents)}\n"))
    if live:
        findings = asyncio.run(probe_all(config))
        beside.writelines(visible(f"{file}: {each.path}: {each.words}\n") for each in findings if not each.code)
        failed = [each for each in findings if each.code]
        if failed:
            code = min((each.code for each in failed), key=_GRAVITY.index)
            wrong = [Problem(str(file), None, None, each.path, each.words) for each in failed]
            raise Stop(code, "\n".join(str(problem) for problem in located(file, wrong)))
    return ExitCode.OK


_GRAVITY = (ExitCode.UNREACHABLE, ExitCode.NOT_AUTHORISED, ExitCode.CONFIG_INVALID, ExitCode.TRY_AGAIN)


def print_schema() -> int:
    sys.stdout.write(f"{json_text(schema(Registry()), indent=2)}\n")
    return ExitCode.OK
