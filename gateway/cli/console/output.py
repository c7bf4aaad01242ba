"""What a command gives back: an exit code, answers on standard output, and everything else on standard error.

Law: text of an agent reaches a terminal only with its control characters made visible.
"""

import errno
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from gateway.cli.console.columns import cut, pad, width

# Control characters except tab and newline, changes of text direction, other line ends, surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOTE_LENGTH = 200
_LAST_COLUMN = 10
"""The least room that a table wants for its last column."""

PROGRAM = "a2a-gateway"
_MODULES = {"__main__.py": "gateway", "a2a_gateway.py": "a2a_gateway"}

Columns: TypeAlias = Mapping[str, Callable[[Any], str]]
"""For the head of each column, the function that makes the text of a cell from a value."""


class ExitCode(IntEnum):
    """Source: sysexits.h for 69 to 78; 10 to 15 stand for the state of a task."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    FAILED = 10
    CANCELED = 11
    REJECTED = 12
    INPUT_REQUIRED = 13
    AUTH_REQUIRED = 14
    TIMED_OUT = 15
    UNREACHABLE = 69
    TRY_AGAIN = 75
    NOT_AUTHORISED = 77
    CONFIG_INVALID = 78
    INTERRUPTED = 130


OF_STATE = {"TASK_STATE_COMPLETED": ExitCode.OK} | {
    f"TASK_STATE_{code.name}": code for code in ExitCode if ExitCode.FAILED <= code <= ExitCode.AUTH_REQUIRED
}


class Stop(Exception):
    """Ends the command. `text` goes to standard error: the problem, its place and the remedy."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Output(StrEnum):
    text = "text"
    json = "json"
    jsonl = "jsonl"


def visible(text: str) -> str:
    """The text with every control character written as an escape such as `\\x1b`."""
    return _UNSAFE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    return cut(" ".join(visible(text).split()), _NOTE_LENGTH)


def reason_of(error: OSError) -> str:
    """Why the system refused, for the middle of a sentence."""
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    # Sockets put the address behind it.
    return (error.strerror or str(error) or type(error).__name__).partition(" (while attempting")[0].lower()


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON for people and programs alike: readable, and safe on a terminal."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def program() -> str:
    """How to call this program again from the same folder, for a shell."""
    called = Path(sys.argv[0])
    if called.name in _MODULES:
        return f"{shlex.quote(_from_here(Path(sys.executable)))} -m {_MODULES[called.name]}"
    path = _from_here(called.absolute())
    found = shutil.which(PROGRAM)
    on_path = found is not None and Path(path).is_absolute() and Path(found).absolute() == called.absolute()
    return PROGRAM if on_path or called.name != PROGRAM else shlex.quote(path)


def config_option(file: Path) -> str:
    """The option that names this configuration file to a command, with a space before it; empty for the default one."""
    return "" if str(file) == "gateway.yaml" else f" -c {shlex.quote(str(file))}"


def _from_here(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


class Screen:
    """Two streams that may be one terminal."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._shared = out.isatty() and err.isatty()
        self._dims = err.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._mid_line = False
        self._last_about: str | None = None

    def answer(self, text: str) -> None:
        """Writes text of the answer at once."""
        if text:
            self._last_about = None
            self._out.write(visible(text))
            self._out.flush()
            self._mid_line = not text.endswith("\n")

    def end_line(self) -> None:
        if self._mid_line:
            self.answer("\n")

    def line(self, text: str) -> None:
        """Writes a line of its own to standard output. The text has no control characters."""
        self.end_line()
        self._last_about = None
        self._out.write(f"{text}\n")
        self._out.flush()

    def note(self, text: str, *, about: str | None = None) -> None:
        """Writes one short line to standard error. On a terminal it replaces the last line if that has the same `about`."""
        line = one_line(text)
        replaces_last = self._dims and about is not None and about == self._last_about
        if self._shared:
            self.end_line()
        up = "\x1b[1A\x1b[2K" if replaces_last else ""
        self._err.write(f"{up}\x1b[2m{line}\x1b[0m\n" if self._dims else f"{line}\n")
        self._err.flush()
        # A line that takes two rows cannot be replaced by going up one.
        self._last_about = about if about and width(line) < shutil.get_terminal_size().columns else None

    @property
    def paints(self) -> bool:
        """Whether standard error is a terminal on which lines may be replaced."""
        return self._dims

    def paint(self, text: str) -> None:
        """Replaces the line at whose beginning the cursor of standard error stands, and leaves it there."""
        self._err.write(f"\r\x1b[2K\x1b[2m{text}\x1b[0m\r" if text else "\r\x1b[2K")
        self._err.flush()

    def report(self, text: str) -> None:
        """Writes whole lines to standard error."""
        if self._shared:
            self.end_line()
        self._last_about = None
        self._err.write(f"{visible(text)}\n")
        self._err.flush()


def print_rows(out: TextIO, heads: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str] = ()) -> None:
    """A pipe gets whole values without heads. On a terminal only the last column is cut, at the end of the line; where it
    had no room, the columns under the heads in `optional` are left out, the first one first."""
    cells = [[" ".join(visible(cell).split()) for cell in row] for row in rows]
    if not out.isatty():
        out.writelines("\t".join(row) + "\n" for row in cells)
        return
    table, room = [list(heads), *cells], shutil.get_terminal_size().columns
    for head in optional:
        if sum(_widths(table)) + _LAST_COLUMN <= room:
            break
        at = table[0].index(head)
        for row in table:
            del row[at]
    widths = _widths(table)
    room -= sum(widths)
    for row in table:
        begin = "".join(pad(cell, columns) for cell, columns in zip(row, widths, strict=False))
        out.write(f"{begin}{cut(row[-1], room)}".rstrip() + "\n")


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    """Columns of a terminal for all columns of the table but the last, with the space between two."""
    return [max(width(row[column]) for row in table) + 2 for column in range(len(table[0]) - 1)]


def local_time(out: TextIO, timestamp: str) -> str:
    """A timestamp of the wire as local time on a terminal, unchanged in a pipe."""
    if not out.isatty():
        return timestamp
    try:
        return f"{datetime.fromisoformat(timestamp).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return timestamp


def print_json(values: Sequence[Any], document: Any, output: Output) -> None:
    """One line for each value (jsonl), or all of them in one document (json)."""
    lines = [json_text(value) for value in values] if output is Output.jsonl else [json_text(document, indent=2)]
    sys.stdout.writelines(f"{line}\n" for line in lines)


def print_listing(
    output: Output, name: str, values: Sequence[Any], columns: Columns, empty: str, optional: Sequence[str] = ()
) -> None:
    """The values under a name in JSON, or a row for each; `empty` says on standard error that there are none. `optional` is
    for `print_rows`."""
    if output is not Output.text:
        print_json(values, {name: values}, output)
    elif values:
        rows = [[cell(value) for cell in columns.values()] for value in values]
        print_rows(sys.stdout, list(columns), rows, optional)
    else:
        sys.stderr.write(f"{empty}\n")
