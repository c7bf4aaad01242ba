"""Output to a terminal: no control characters of an agent."""

import io
import json

import pytest

from gateway.cli.console.output import Screen, json_text, one_line, program, visible


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00e9 \U0001f30d\ttab\nline", "plain \u00e9 \U0001f30d\ttab\nline"),
        ("one\r\ntwo", "one\ntwo"),
        ("over\rwritten", "over\\x0dwritten"),
        ("\x1b[2J\x07\x00\x7f", "\\x1b[2J\\x07\\x00\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("a\u2028b", "a\\u2028b"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_json_is_readable_safe_and_the_same_value() -> None:
    value = {"a": ["\u00e9", "\x1b[0m", "\u202e", "\ud800", "\x7f"]}
    assert json_text(value) == '{"a":["\u00e9","\\u001b[0m","\\u202e","\\ud800","\\u007f"]}'
    assert json.loads(json_text(value, indent=2)) == value
    assert "\n" in json_text(value, indent=2)


def test_a_note_is_one_line_and_not_long() -> None:
    assert one_line("a\n b\t\x1bc") == "a b \\x1bc"
    assert one_line("x" * 300) == "x" * 199 + "\u2026"


def test_in_pipes_the_answer_and_the_notes_are_separate() -> None:
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err)
    screen.answer("Hel")
    screen.note("tool: x")
    screen.answer("lo\x1b")
    screen.report("context c")
    screen.line("{}")
    assert (out.getvalue(), err.getvalue()) == ("Hello\\x1b\n{}\n", "tool: x\ncontext c\n")


def test_on_one_terminal_a_note_begins_on_a_line_of_its_own_and_is_dim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out, err = Terminal(), Terminal()
    screen = Screen(out, err)
    screen.answer("Hel")
    screen.note("tool: x")
    screen.answer("")
    screen.end_line()
    assert (out.getvalue(), err.getvalue()) == ("Hel\n", "\x1b[2mtool: x\x1b[0m\n")


def test_on_a_terminal_a_note_replaces_the_last_one_about_the_same_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    err = Terminal()
    screen = Screen(io.StringIO(), err)
    for text, about in (("1 of 2", "a"), ("2 of 2", "a"), ("other", "b"), ("one", None), ("two", None)):
        screen.note(text, about=about)
    assert err.getvalue() == "".join(
        f"{up}\x1b[2m{text}\x1b[0m\n"
        for up, text in (("", "1 of 2"), ("\x1b[1A\x1b[2K", "2 of 2"), ("", "other"), ("", "one"), ("", "two"))
    )


def test_a_note_is_not_replaced_after_other_text_or_when_it_takes_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    err = Terminal()
    screen = Screen(Terminal(), err)
    screen.note("1 of 2", about="a")
    screen.answer("Hel")
    screen.note("2 of 2 and longer than a row", about="a")
    screen.note("3 天气预报天气预报天气", about="a")
    screen.note("done", about="a")
    assert "\x1b[1A" not in err.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_turned_off(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    err = Terminal()
    Screen(io.StringIO(), err).note("tool: x")
    assert err.getvalue() == "tool: x\n"


@pytest.mark.parametrize(
    ("called", "found", "shown"),
    [
        ("{here}/bin/a2a-gateway", "{here}/bin/a2a-gateway", "bin/a2a-gateway"),
        ("bin/a2a-gateway", None, "bin/a2a-gateway"),
        ("/opt/x/a2a-gateway", "/opt/x/a2a-gateway", "a2a-gateway"),
        ("/opt/a b/a2a-gateway", "/opt/x/a2a-gateway", "'/opt/a b/a2a-gateway'"),
        ("/opt/x/pytest", None, "a2a-gateway"),
        ("/opt/x/gateway/__main__.py", None, "/opt/python -m gateway"),
        ("/opt/x/a2a_gateway.py", None, "/opt/python -m a2a_gateway"),
    ],
)
def test_the_program_is_named_so_that_this_shell_finds_it(
    called: str,
    found: str | None,
    shown: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    monkeypatch.setattr("sys.argv", [called.format(here=here)])
    monkeypatch.setattr("sys.executable", "/opt/python")
    monkeypatch.setattr("shutil.which", lambda _: found and found.format(here=here))
    assert program() == shown
