"""Tables on a terminal and in a pipe."""

import io
import os

import pytest

from gateway.cli.console.columns import cut
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


WIDE = ["天气预报", "e\u0301te\u0301", "👩‍👩‍👧", "🇳🇴🇩🇪", "plain", "日本"]


def test_columns_of_wide_and_joined_characters_stand_under_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    print_rows(out, ("NAME", "WHAT"), [(name, "x") for name in WIDE])
    assert out.getvalue().splitlines() == [
        "NAME      WHAT",
        "天气预报  x",
        "e\u0301te\u0301       x",
        "👩‍👩‍👧        x",
        "🇳🇴🇩🇪      x",
        "plain     x",
        "日本      x",
    ]


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("天气预报", 8, "天气预报"),
        ("天气预报", 7, "天气预…"),
        ("天气预报", 6, "天气…"),
        ("ae\u0301e\u0301e\u0301", 3, "ae\u0301…"),
        ("a👩‍👩‍👧b👩‍👩‍👧c", 5, "a👩‍👩‍👧b…"),
        ("a🇳🇴🇩🇪", 4, "a🇳🇴…"),
        ("👍🏽👍🏽", 3, "👍🏽…"),
        ("天", 1, "…"),
        ("天", 0, ""),
        ("plain", 4, "pla…"),
    ],
)
def test_no_character_that_a_person_sees_is_cut(text: str, room: int, shown: str) -> None:
    assert cut(text, room) == shown


def narrow(width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    rows = [("0194f7a2-0000-7000-8000-0123456789ab", "completed", "now", "c" * 36, "What is the weather?")]
    print_rows(out, ("TASK", "STATE", "SINCE", "CONTEXT", "BEGAN WITH"), rows, optional=("CONTEXT", "SINCE"))
    return out.getvalue().splitlines()


def test_a_narrow_terminal_gets_fewer_columns_and_whole_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    task = "0194f7a2-0000-7000-8000-0123456789ab"
    assert narrow(120, monkeypatch)[1] == f"{task}  completed  now    {'c' * 36}  What is the weather?"
    head, row = narrow(80, monkeypatch)
    assert (head.split(), row) == (
        ["TASK", "STATE", "SINCE", "BEGAN", "WITH"],
        f"{task}  completed  now    What is the weather?",
    )
    head, row = narrow(62, monkeypatch)
    assert head.split() == ["TASK", "STATE", "BEGAN", "WITH"]
    assert row == f"{task}  completed  What is the …"
    assert narrow(40, monkeypatch)[1] == f"{task}  completed"
