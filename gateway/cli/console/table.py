"""Results on standard output: aligned columns on a terminal, values between tabs in a pipe, or JSON."""

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO, TypeAlias

from gateway.cli.console.parameters import Output
from gateway.cli.console.terminal import json_text, visible

_GAP = "  "

Columns: TypeAlias = Mapping[str, Callable[[Any], str]]
"""For the head of each column, the function that makes the text of a cell from a value."""


def print_rows(out: TextIO, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A pipe gets whole values without heads; on a terminal the last column is cut at the end of the line."""
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


def print_listing(output: Output, name: str, values: Sequence[Any], columns: Columns, empty: str) -> None:
    """The values under a name in JSON, or a row for each; `empty` says on standard error that there are none."""
    if output is not Output.text:
        print_json(values, {name: values}, output)
    elif values:
        print_rows(sys.stdout, list(columns), [[cell(value) for cell in columns.values()] for value in values])
    else:
        sys.stderr.write(f"{empty}\n")
