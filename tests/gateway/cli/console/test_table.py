"""Tables on a terminal and in a pipe."""

import io
import os

import pytest

from gateway.cli.console.output import local_time, print_rows

HEADS = ("TASK", "STATE", "BEGAN WITH")
ROWS = [("t-1", "completed", "What is\nthe \x1b[1mweather?"), ("task-2", "failed", "")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_the_values_between_tabs_and_nothing_else() -> None:
    out = io.StringIO()
    print_rows(out, HEADS, ROWS)
    assert out.getvalue() == "t-1\tcompleted\tWhat is the \\x1b[1mweather?\ntask-2\tfailed\t\n"


def test_a_terminal_gets_columns_with_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    print_rows(out, HEADS, ROWS)
    assert out.getvalue().splitlines() == [
        "TASK    STATE      BEGAN WITH",
        "t-1     completed  What is the \\x1b[1mweather?",
        "task-2  failed",
    ]


def test_a_row_wider_than_the_terminal_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    out = Terminal()
    print_rows(out, HEADS, ROWS)
    assert out.getvalue().splitlines()[1] == "t-1     completed  What is th…"


def test_times_are_local_on_a_terminal_and_untouched_in_a_pipe() -> None:
    moment = "2026-11-20T10:00:00.123Z"
    assert local_time(io.StringIO(), moment) == moment
    assert local_time(Terminal(), moment)[-6:] == ":00:00"
    assert local_time(Terminal(), "soon") == "soon"
    assert os.linesep not in local_time(Terminal(), moment)
