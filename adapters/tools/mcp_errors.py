"""What may be known of an MCP session without its library.

Why an MCP server that is started here does not run, in words that name the command and the remedy.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.ports.tools import ProgramNotStarted, ToolError


class SessionExpired(ToolError):
    """The server does not know the session any more, and so has not looked at the request."""


def not_started(command: Sequence[str], env: Mapping[str, str], cwd: Path | None, why: str) -> ProgramNotStarted:
    """Looks again at what starting it needed. `why` is what its library says, which is no word about any of that."""
    program = command[0]
    if cwd is not None and not cwd.is_dir():
        return ProgramNotStarted(f"`cwd`, the folder of the command {program!r}, is not there: {str(cwd)!r}")
    if os.sep in program:
        path = (cwd or Path()) / program
        if not path.is_file():
            return ProgramNotStarted(f"the command {program!r} is not there; write the path of a program that is")
        if not os.access(path, os.X_OK):
            return ProgramNotStarted(
                f"the command {program!r} may not be run; chmod +x it, or name the program that runs it"
            )
    elif shutil.which(program, path=env.get("PATH")) is None:
        return ProgramNotStarted(
            f"there is no command {program!r} on the PATH; install it, or write its whole path in `command`"
        )
    # Its arguments may hold a secret.
    return ProgramNotStarted(
        f"the command {program!r} was started, but does not serve: {why}; what it says stands on standard error"
    )
