"""Rows on standard output: aligned columns on a terminal, plain values between tabs in a pipe."""

import shutil
from collections.abc import Sequence
from datetime import datetime
from typing import TextIO

from gateway.cli.terminal import visible

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
