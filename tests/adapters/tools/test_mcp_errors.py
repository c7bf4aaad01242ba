"""Why a command does not serve, in words that name it and the remedy."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from adapters.tools.mcp_errors import start_error

NO_ENV: Mapping[str, str] = {}


def detail_of(command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] = NO_ENV) -> str:
    return start_error(command, env, cwd, "Connection closed").detail


def test_a_command_that_is_nowhere_on_the_path() -> None:
    remedy = "install it, or write its whole path in `command`"
    assert detail_of(["npxx", "-y"]) == f"there is no command 'npxx' on the PATH; {remedy}"


def test_the_path_is_that_which_the_command_gets(tmp_path: Path) -> None:
    program = tmp_path / "serves"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert detail_of(["serves"]).startswith("there is no command 'serves'")
    assert detail_of(["serves"], env={"PATH": str(tmp_path)}).startswith("the command 'serves' was started")


def test_a_missing_file_and_one_that_may_not_be_run_have_different_errors(tmp_path: Path) -> None:
    assert (
        detail_of(["./serves"], tmp_path) == "the command './serves' is not there; write the path of a program that is"
    )
    (tmp_path / "serves").touch(0o644)
    assert detail_of(["./serves"], tmp_path).startswith("the command './serves' may not be run; chmod +x it")


def test_a_folder_that_is_not_there_is_not_taken_for_the_command(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert detail_of(["sh"], gone) == f"`cwd`, the folder of the command 'sh', is not there: '{gone}'"


def test_the_error_of_a_program_that_ends_holds_no_arguments() -> None:
    assert detail_of([sys.executable, "--token", "sk-1234"]) == (
        f"the command {sys.executable!r} was started, but does not serve: Connection closed; "
        "what it says stands on standard error"
    )
