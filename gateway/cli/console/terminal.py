"""What the user sees: answers on standard output, everything else on standard error.

Law: nothing that an agent says reaches a terminal before its control characters are made visible.

Rows on standard output: aligned columns on a terminal, plain values between tabs in a pipe.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

# Control characters but for tab and newline, those that turn the direction of text, other ends of lines, half characters.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOTE_LENGTH = 200

PROGRAM = "a2a-gateway"


def visible(text: str) -> str:
    """The text with everything that a terminal would obey written as an escape such as `\\x1b`."""
    return _UNSAFE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    line = " ".join(visible(text).split())
    return line if len(line) <= _NOTE_LENGTH else line[: _NOTE_LENGTH - 1] + "…"


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON for people and programs alike: readable, and safe on a terminal."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def program() -> str:
    """How to call this program again from the same folder, for a shell."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(_from_here(Path(sys.executable)))} -m gateway"
    path = _from_here(called.absolute())
    found = shutil.which(PROGRAM)
    on_path = found is not None and Path(path).is_absolute() and Path(found).absolute() == called.absolute()
    return PROGRAM if on_path or called.name != PROGRAM else shlex.quote(path)


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
        """Text of the answer, as it comes."""
        if text:
            self._last_about = None
            self._out.write(visible(text))
            self._out.flush()
            self._mid_line = not text.endswith("\n")

    def end_line(self) -> None:
        if self._mid_line:
            self.answer("\n")

    def line(self, text: str) -> None:
        """A line of standard output of its own. The text is safe already."""
        self.end_line()
        self._last_about = None
        self._out.write(f"{text}\n")
        self._out.flush()

    def note(self, text: str, *, about: str | None = None) -> None:
        """A line beside the answer, in short. On a terminal it takes the place of a last line about the same thing."""
        line = one_line(text)
        self._beside(line, again=self._dims and about is not None and about == self._last_about)
        # What takes two rows cannot be replaced by going up one.
        self._last_about = about if len(line) < shutil.get_terminal_size().columns else None

    def _beside(self, line: str, *, again: bool) -> None:
        if self._shared:
            self.end_line()
        up = "\x1b[1A\x1b[2K" if again else ""
        self._err.write(f"{up}\x1b[2m{line}\x1b[0m\n" if self._dims else f"{line}\n")
        self._err.flush()

    def tell(self, text: str) -> None:
        """Lines on standard error, whole."""
        if self._shared:
            self.end_line()
        self._last_about = None
        self._err.write(f"{visible(text)}\n")
        self._err.flush()


_GAP = "  "


def print_rows(out: TextIO, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A pipe gets no heads and whole values; on a terminal the last column is cut where the line ends."""
    cells = [[" ".join(visible(cell).split()) for cell in row] for row in rows]
    if not out.isatty():
        out.writelines("\t".join(row) + "\n" for row in cells)
        return
    table = [list(heads), *cells]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads) - 1)]
    columns = shutil.get_terminal_size().columns
    for row in table:
        aligned = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        line = _GAP.join([*aligned, row[-1]]).rstrip()
        out.write(f"{line if len(line) <= columns else line[: columns - 1] + '…'}\n")


def local_time(out: TextIO, timestamp: str) -> str:
    """A time of the wire for people on a terminal; a program in a pipe gets it as it came."""
    if not out.isatty():
        return timestamp
    try:
        return f"{datetime.fromisoformat(timestamp).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return timestamp
