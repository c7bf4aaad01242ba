"""Errors of MCP servers, without their library: a session that is over, and why a server that is started here does not run."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.ports.tools import ProgramNotStarted, ToolError


class SessionExpired(ToolError):
    """The session is over, and the server did not carry out the request, which can be made in another session."""


def start_error(command: Sequence[str], env: Mapping[str, str], cwd: Path | None, why: str) -> ProgramNotStarted:
    """Why a program does not serve, with the remedy. `why` is the MCP library's text, which does not tell that."""
    return ProgramNotStarted(
        _obstacle(command[0], env, cwd)
        or f"the command {command[0]!r} was started, but does not serve: {why}; what it says stands on standard error"
    )


def _obstacle(program: str, env: Mapping[str, str], cwd: Path | None) -> str | None:
    """The reason why the program cannot start, or None. The text does not contain the arguments, which may hold a
    secret."""
    if cwd is not None and not cwd.is_dir():
        return f"`cwd`, the folder of the command {program!r}, is not there: {str(cwd)!r}"
    if os.sep not in program:
        if shutil.which(program, path=env.get("PATH")) is None:
            return f"there is no command {program!r} on the PATH; install it, or write its whole path in `command`"
        return None
    path = (cwd or Path()) / program
    if not path.is_file():
        return f"the command {program!r} is not there; write the path of a program that is"
    if not os.access(path, os.X_OK):
        return f"the command {program!r} may not be run; chmod +x it, or name the program that runs it"
    return None
