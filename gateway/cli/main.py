"""Runs one command line.

Law: every error ends in a plain message and an exit code; only --debug shows a traceback.
"""

import errno
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import typer

from gateway.cli.commands import app
from gateway.cli.console.output import PROGRAM, ExitCode, Stop, one_line, visible

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_MORE_WORDS = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)

_COMPLETION = "_A2A_GATEWAY_COMPLETE"
"""The variable with which a shell asks for completions."""


def run(arguments: Sequence[str]) -> int:
    """The exit code. `--debug` may stand anywhere before a `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    debug = "--debug" in arguments[:at]
    options, rest = [option for option in arguments[:at] if option != "--debug"], arguments[at:]
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal of another encoding gets escapes instead of an error.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if not options and not rest and _COMPLETION not in os.environ:
        _execute(["--help"], debug)
        return ExitCode.USAGE
    return _execute([*options, *rest], debug)


def _open_closed_streams() -> None:
    """A shell may close standard streams (`<&-`); the next file to be opened, such as the database, would take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # open until the process ends


def _execute(arguments: list[str], debug: bool) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except Stop as stop:
        if debug and stop.__cause__ is not None:
            traceback.print_exception(stop.__cause__)
        return _report(stop.code, stop.text)
    except typer.TyperException as error:
        context: typer.Context | None = getattr(error, "ctx", None)
        path = context.command_path if context else f"{PROGRAM} {arguments[0]}"
        text = _plain(error.format_message())
        return _report(error.exit_code, f"{path}: {text}\n{_extra_hint(context, text)}See: {path} --help")
    except Exception as error:  # noqa: BLE001  # the last resort of a command line
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            return _report(ExitCode.UNEXPECTED, f"what there is to say cannot be written: {error.strerror}")
        if debug:
            traceback.print_exception(error)
        message = one_line(f"{type(error).__name__}: {error}")
        return _report(ExitCode.UNEXPECTED, f"unexpected error: {message}\nRun it again with --debug for the details.")
    return code if isinstance(code, int) else ExitCode.OK


def _extra_hint(context: typer.Context | None, problem: str) -> str:
    """A line for a text of several words that the shell took apart, and for a configuration file without its option; else
    empty."""
    more = _MORE_WORDS.fullmatch(problem)
    if context is None or more is None:
        return ""
    if isinstance(text := context.params.get("text"), str):
        quoted = shlex.quote(f"{text} {more[1]}")
        return f"A text of several words stands in quotes: {context.command_path} {quoted}\n"
    if more[1].endswith((".yaml", ".yml")) and "file" in context.params:
        return f"A configuration file is named with -c: {context.command_path} -c {shlex.quote(more[1])}\n"
    return ""


def _plain(text: str) -> str:
    """The library's message about a value, without its internal terms."""
    return text.replace("Value error, ", "").replace("Input should be", "must be").partition(", unable")[0].rstrip(".")


def _report(code: int, text: str) -> int:
    sys.stderr.write(f"{visible(text)}\n")
    return code
