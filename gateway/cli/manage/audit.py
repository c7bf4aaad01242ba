"""`audit verify`: whether the lines of an audit log are those that were written."""

import os
import sys
from pathlib import Path

from gateway.cli.console.output import ExitCode, Output, Stop, print_json, visible
from gateway.telemetry.audit_chain import Verified, verify


def print_verification(files: list[Path], key_variable: str | None, output: Output) -> None:
    """The files are those of one log, the oldest first. Raises: Stop (1) where a line is not as it was written."""
    key = None
    if key_variable is not None:
        key = os.environb.get(key_variable.encode(), b"")
        if not key:
            raise Stop(ExitCode.USAGE, f"--key-variable: {key_variable} is not set in the environment")
    verified = Verified()
    found: list[dict[str, str | int]] = []
    lines = 0
    for file in files:
        try:
            with file.open("rb") as opened:
                held = opened.readlines()
        except OSError as error:
            raise Stop(ExitCode.USAGE, f"{file} cannot be read: {error.strerror}") from error
        lines += len(held)
        found += [{"file": str(file), "line": fault.line, "fault": fault.what} for fault in verify(held, key, verified)]
    if output is Output.text:
        for fault in found:
            sys.stdout.write(visible(f"{fault['file']}:{fault['line']}: {fault['fault']}\n"))
        if lines and not found:
            sys.stdout.write(f"{lines} lines of {len(verified.heads)} processes are as they were written\n")
    else:
        ends = {process: {"seq": seq, "hash": digest} for process, (seq, digest) in verified.heads.items()}
        document = {"lines": lines, "faults": found, "head": verified.head, "heads": ends}
        print_json([document], document, output)
    if not lines:
        raise Stop(
            ExitCode.UNEXPECTED, "there is no line, although the first process that writes a log begins it with one"
        )
    if found:
        raise Stop(ExitCode.UNEXPECTED, f"{_many(len(found), 'finding')} in {_many(lines, 'line')}")


def _many(count: int, one: str) -> str:
    return f"{count} {one if count == 1 else f'{one}s'}"
