"""Lines of the standard library's logging, which adapters, libraries and an operator's functions use."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.foundation.logs import log_format

CONFIGURED = "import logging; from gateway.foundation.logs import configure_logging; configure_logging({}); "
LINES = """import os, time, msgspec
from gateway.foundation.logs import LogLine, write_lines
class Line(LogLine, kw_only=True):
    path: str | msgspec.UnsetType = msgspec.UNSET
    ms: float | msgspec.UnsetType = msgspec.UNSET
"""


def logged(code: str, settings: str = "") -> list[str]:
    """The lines that a process with the gateway's logs writes to its standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", CONFIGURED.format(settings) + code],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.stderr.splitlines()


def test_a_warning_of_an_adapter_is_one_json_object() -> None:
    (line,) = logged("logging.getLogger('adapters.some').warning('%s is late', 'a\\n{\"event\": \"forged\"}')")

    told = json.loads(line)
    assert told.pop("timestamp").endswith("Z")
    assert told == {"event": 'a\n{"event": "forged"} is late', "level": "warning", "logger": "adapters.some"}


def test_an_exception_goes_with_its_line() -> None:
    code = "\ntry: 1 / 0\nexcept ArithmeticError: logging.getLogger('adapters.some').exception('not closed')"

    (line,) = logged(code)

    told = json.loads(line)
    assert (told["event"], told["level"]) == ("not closed", "error")
    assert told["exception"].endswith("ZeroDivisionError: division by zero")


def test_what_an_agent_says_is_kept_from_the_level_of_the_log_on() -> None:
    code = "mine = logging.getLogger('mine'); mine.info('%s asked', 'ada'); mine.debug('closely')"

    (line,) = map(json.loads, logged(code))
    assert (line["event"], line["level"], line["logger"]) == ("ada asked", "info", "mine")
    assert [json.loads(line)["event"] for line in logged(code, "logging.DEBUG")] == ["ada asked", "closely"]
    assert logged(code, "logging.WARNING") == []


def test_a_call_of_the_logging_module_itself_has_the_form_of_all_lines_and_leaves_it_to_the_others() -> None:
    lines = [json.loads(line) for line in logged("logging.info('one'); logging.getLogger('two').info('two')")]

    assert [(line["event"], line["logger"]) for line in lines] == [("one", "root"), ("two", "two")]


def test_a_level_alone_is_no_other_form() -> None:
    code = "logging.basicConfig(level=logging.WARNING); mine = logging.getLogger('mine'); mine.info('no'); mine.error('yes')"

    assert [json.loads(line)["event"] for line in logged(code)] == ["yes"]


def test_libraries_that_tell_of_each_request_are_heard_from_a_warning_on() -> None:
    code = "quiet = logging.getLogger('httpx2'); quiet.info('GET'); quiet.warning('late')"

    assert [json.loads(line)["event"] for line in logged(code)] == ["late"]
    assert [json.loads(line)["event"] for line in logged(code, "logging.DEBUG")] == ["GET", "late"]


def test_a_library_that_logs_what_it_also_raises_is_heard_at_debug_alone() -> None:
    code = "\ntry: 1 / 0\nexcept ArithmeticError: logging.getLogger('mcp.client.stdio').exception('no message')"

    assert logged(code) == []
    assert [json.loads(line)["event"] for line in logged(code, "logging.DEBUG")] == ["no message"]


def test_the_session_of_mcp_is_heard_at_debug_alone_and_another_logger_of_its_name_always() -> None:
    code = (
        "theirs = compile('logging.getLogger(\\'client\\').warning(\\'theirs\\')', '/lib/mcp/client/session.py', 'exec'); "
        "exec(theirs); logging.getLogger('client').warning('mine')"
    )

    assert [json.loads(line)["event"] for line in logged(code)] == ["mine"]
    assert [json.loads(line)["event"] for line in logged(code, "logging.DEBUG")] == ["theirs", "mine"]


def test_a_warning_of_python_and_the_end_of_a_thread_are_lines_too() -> None:
    code = (
        "import threading, warnings; warnings.warn('old\\n{}', stacklevel=1); "
        "thread = threading.Thread(target=lambda: 1 / 0, name='mine'); thread.start(); thread.join()"
    )

    warned, ended = map(json.loads, logged(code))
    assert (warned["level"], warned["logger"]) == ("warning", "py.warnings")
    assert "UserWarning: old\n{}" in warned["event"]
    assert (ended["event"], ended["level"], ended["thread"]) == ("thread.failed", "error", "mine")
    assert ended["exception"].endswith("ZeroDivisionError: division by zero")


FAULTY = {
    "a number that is none": (
        "mine.info('got %d items', 'three')",
        "got %d items",
        "('three',)",
        "TypeError: %d format",
    ),
    "too many": ("mine.info('done', 1)", "done", "(1,)", "TypeError: not all arguments"),
    "too few": ("mine.info('%s of %s', 1)", "%s of %s", "(1,)", "TypeError: not enough arguments"),
    "a name that is not there": ("mine.info('%(a)s', {'b': 1})", "%(a)s", "{'b': 1}", "KeyError: 'a'"),
    "a value without words": ("mine.info('%s', Bad())", "%s", "(<Bad instance at ", "ZeroDivisionError: division by"),
    "a message without words": ("mine.info(Bad())", "<Bad instance at ", "()", "ZeroDivisionError: division by"),
    "at a level of its own": ("mine.log(25, '%d', 'x')", "%d", "('x',)", "TypeError: %d format"),
}


@pytest.mark.parametrize(("call", "message", "arguments", "detail"), FAULTY.values(), ids=FAULTY)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_call_whose_arguments_do_not_fit_its_message_is_one_line_that_tells_the_call(
    call: str, message: str, arguments: str, detail: str, form: str
) -> None:
    code = (
        "mine = logging.getLogger('mine')\n"
        "class Bad:\n    def __repr__(self): return 1 / 0\n"
        f"def faulty(): {call}\n"
        "faulty(); mine.info('goes on')"
    )
    faulty, after = logged(code, f"form='{form}'")
    assert "goes on" in after
    if form == "text":
        assert "[info     ] python.log-failed message=" in faulty
        return
    told = json.loads(faulty)
    assert (told["event"], told["level"], told["logger"]) == ("python.log-failed", "info", "mine")
    assert told["message"].startswith(message)
    assert told["arguments"].startswith(arguments)
    assert told["detail"].startswith(detail)
    assert (told["file"], told["line"], told["function"]) == ("<string>", 4, "faulty")


def test_a_faulty_call_in_an_except_block_keeps_its_traceback() -> None:
    code = "\ntry: 1 / 0\nexcept ArithmeticError: logging.getLogger('mine').exception('%d', 'x')"

    (line,) = map(json.loads, logged(code))
    assert (line["event"], line["level"]) == ("python.log-failed", "error")
    assert line["exception"].endswith("ZeroDivisionError: division by zero")


PRINTS = (
    "import threading; "
    "mine = threading.Thread(target=lambda: print({}, end='\\n' if {} else '')); mine.start(); mine.join(); "
)


def printed(code: str) -> tuple[list[dict[str, Any]], str]:
    """The lines of the log, and standard output."""
    ended = subprocess.run(
        [sys.executable, "-c", CONFIGURED.format("") + code], check=True, capture_output=True, text=True, timeout=60
    )
    return [json.loads(line) for line in ended.stderr.splitlines()], ended.stdout


def test_what_a_thread_prints_are_lines_of_the_log_and_standard_output_is_that_of_the_main_thread() -> None:
    lines, out = printed(PRINTS.format("'one\\ntwo'", True) + "print('mine')")
    assert [(line["event"], line["line"], line["level"]) for line in lines] == [
        ("python.output", "one", "info"),
        ("python.output", "two", "info"),
    ]
    assert out == "mine\n"


@pytest.mark.parametrize(("text", "told"), [("'half a line'", ["half a line"]), ("'x' * 10_000", ["x" * 10_000])])
def test_a_printed_line_without_an_end_is_not_lost(text: str, told: list[str]) -> None:
    lines, out = printed(PRINTS.format(text, False))
    assert ([line["line"] for line in lines], out) == (told, "")


def test_the_pieces_of_a_line_that_several_threads_print_are_put_together_by_thread() -> None:
    code = (
        "import threading; turns = [threading.Event() for _ in range(3)]\n"
        "def say(first, number):\n"
        "    print(first, end=' '); turns[number].set(); turns[number + 1].wait(); print('line')\n"
        "one = threading.Thread(target=say, args=('one', 0)); two = threading.Thread(target=say, args=('two', 1))\n"
        "one.start(); turns[0].wait(); two.start(); turns[1].wait(); one.join(); turns[2].set(); two.join()"
    )
    lines, _ = printed(code)
    assert [line["line"] for line in lines] == ["one line", "two line"]


def test_bytes_that_a_thread_prints_are_text_of_the_log_too() -> None:
    code = (
        "import io, sys, threading\n"
        "def say():\n"
        "    sys.stdout.buffer.write(b'raw \\xff\\n'); sys.stdout.buffer.write(b'half'); sys.stdout.buffer.write(b' line\\n')\n"
        "    print('as ever', file=io.TextIOWrapper(sys.stdout.buffer), flush=True); print('still')\n"
        "mine = threading.Thread(target=say); mine.start(); mine.join(); sys.stdout.buffer.write(b'mine')"
    )
    lines, out = printed(code)
    assert [line["line"] for line in lines] == ["raw \ufffd", "half line", "as ever", "still"]
    assert out == "mine"


def test_a_function_that_configures_logging_keeps_its_configuration() -> None:
    code = "logging.basicConfig(level='INFO', format='%(message)s'); logging.getLogger('mine').info('as I like it')"

    assert logged(code) == ["as I like it"]


def test_a_line_is_written_in_one_piece() -> None:
    """Otherwise lines of two threads are mixed where Python's own output is not buffered."""
    code = (
        "import structlog, sys; pieces = []; "
        "sys.stderr = type('Told', (), {'write': lambda _, text: pieces.append(text), 'flush': lambda _: None})(); "
        "configure_logging(); "
        "structlog.get_logger('gateway.some').info('one'); logging.getLogger('two').warning('two'); "
        "sys.stderr = sys.__stderr__; print(*pieces, sep='', end='', file=sys.stderr); "
        "assert len(pieces) == 2, pieces"
    )

    assert [json.loads(line)["event"] for line in logged(code)] == ["one", "two"]


# --- text for people

TEXT = "form='text'"


def test_a_line_of_text_has_time_level_event_and_values() -> None:
    code = "import structlog; structlog.get_logger().info('turn', agent='a', ms=1.5, said='two words', none='')"

    (line,) = logged(code, TEXT)
    day, time, rest = line.split(" ", 2)
    assert (day.count("-"), time.count(":")) == (2, 2)
    assert rest == "[info     ] turn agent=a ms=1.5 said='two words' none=''"


def test_no_value_of_a_text_begins_a_line_or_steers_a_terminal() -> None:
    forged = r"a\n2026-01-01 00:00:00 [info     ] forged\x1b[2J\u2028\u202e"
    said = f"structlog.get_logger().info('said', text='{forged}')"
    code = f"import structlog; {said}; logging.getLogger('mine').error('{forged}')"

    lines = logged(code, TEXT)
    assert all(line.isprintable() for line in lines)
    first, second = [line for line in lines if not line.startswith("  ")]
    assert first.endswith("] said")
    assert second.endswith(rf"] {forged} logger=mine")


def test_a_traceback_of_a_text_is_readable_and_cannot_be_taken_for_lines_of_the_log() -> None:
    code = (
        "\ntry: raise ValueError('no\\n2026-01-01 00:00:00 [info] forged\\x1b[2J')"
        "\nexcept ValueError: logging.getLogger('mine').exception('not closed')"
    )

    first, *rest = logged(code, TEXT)
    assert first.endswith("[error    ] not closed logger=mine")
    assert rest[0] == "    Traceback (most recent call last):"
    assert rest[-2:] == ["    ValueError: no", r"    2026-01-01 00:00:00 [info] forged\x1b[2J"]
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.parametrize("processors", ["[]", "[structlog.dev.ConsoleRenderer()]"])
def test_a_function_that_configures_structlog_changes_no_line_that_is_written_so(processors: str) -> None:
    code = f"""import structlog; structlog.configure(processors={processors})
from gateway.foundation.logs import LogLine, write_lines; write_lines([(0, LogLine(event='turn'))])"""
    (line,) = logged(code)
    assert json.loads(line) == {"event": "turn", "level": "info", "timestamp": "1970-01-01T00:00:00.000Z"}


def test_several_lines_are_written_in_the_form_of_all_others() -> None:
    code = "write_lines([(0, Line(event='turn', ms=1.5))])"

    assert [json.loads(line) for line in logged(LINES + code)] == [
        {"event": "turn", "ms": 1.5, "level": "info", "timestamp": "1970-01-01T00:00:00.000Z"}
    ]
    (line,) = logged(f"{LINES}os.environ['TZ'] = 'UTC'; time.tzset(); {code}", TEXT)
    assert line == "1970-01-01 00:00:00 [info     ] turn ms=1.5"


@pytest.mark.parametrize("path", ["/\x9b2J", "/\ud800", "/\u202e", "/\n{}"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_that_are_written_together_are_as_safe_as_others(path: str, form: str) -> None:
    code = f"{LINES}write_lines([(0, Line(event='request', path={path!r}))])"

    (line,) = logged(code, f"form='{form}'")
    assert line.isascii()
    assert line.isprintable()
    assert form == "text" or json.loads(line)["path"] == path


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "done", ["sys.stderr.close()", "sys.stderr = None", "sys.stderr = io.StringIO()", "os.close(2)"]
)
def test_code_that_closes_or_exchanges_standard_error_silences_no_line(done: str, form: str) -> None:
    code = f"""import io, os, structlog, sys; {done}
structlog.get_logger().error('one'); logging.error('two'); write_lines([(0, Line(event='three'))]); os._exit(0)"""

    one, two, three = logged(f"{LINES}{code}", f"form='{form}'")
    assert ("one" in one, "two" in two, "three" in three) == (True, True, True)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_standard_error_that_takes_nothing_ends_nothing(form: str) -> None:
    code = "import structlog; structlog.get_logger().error('lost'); logging.error('lost')"

    with Path("/dev/full").open("w", encoding="utf-8") as full:
        command = [sys.executable, "-c", CONFIGURED.format(f"form='{form}'") + code + "; import os; os._exit(0)"]
        subprocess.run(command, check=True, stderr=full, timeout=60)


def test_a_line_of_a_copy_is_not_kept_by_one_that_was_being_written() -> None:
    code = (
        "import os, structlog, threading, warnings\nfrom gateway.foundation import logs\n"
        "warnings.simplefilter('ignore')  # Python warns of a fork beside a thread\n"
        "held, done = threading.Event(), threading.Event()\n"
        "def write():\n    with logs._stderr._lock: held.set(); done.wait()\n"
        "other = threading.Thread(target=write); other.start(); held.wait()\n"
        "if not (copy := os.fork()): logging.error('told'); os._exit(0)\n"
        "os.waitpid(copy, 0); done.set()"
    )

    assert [json.loads(line)["event"] for line in logged(code)] == ["told"]


@pytest.mark.parametrize(("kind", "painted"), [("xterm", True), ("dumb", False)])
def test_a_terminal_that_cannot_paint_gets_no_colours(kind: str, painted: bool) -> None:
    terminal, inside = pty.openpty()
    code = CONFIGURED.format(TEXT) + "logging.error('told')"
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": kind}
    subprocess.run([sys.executable, "-c", code], check=True, stderr=inside, env=environment, timeout=60)
    assert (b"\x1b" in os.read(terminal, 4096)) is painted
    os.close(inside)
    os.close(terminal)


def test_text_is_for_a_terminal() -> None:
    assert (log_format("auto"), log_format("text"), log_format("json")) == ("json", "text", "json")


def test_a_list_under_the_name_of_a_trace_stands_below_its_line() -> None:
    code = r"import structlog; structlog.get_logger().warning('blocked', frames=['a.py:1 one\x1b', 'b.py:2 two'], task='t')"

    first, *rest = logged(code, TEXT)
    assert first.endswith("[warning  ] blocked task=t")
    assert rest == ["  frames:", r"    a.py:1 one\x1b", "    b.py:2 two"]


def test_a_value_of_several_lines_stands_below_its_line() -> None:
    code = r"import structlog; structlog.get_logger().warning('failed', detail='one\n  two\x1b\n', task='t')"

    first, *rest = logged(code, TEXT)
    assert first.endswith("[warning  ] failed task=t")
    assert rest == ["  detail:", "    one", r"      two\x1b"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_every_line_of_one_of_several_processes_has_its_number(form: str) -> None:
    code = LINES + (
        "logging.warning('one'); write_lines([(0, Line(event='two'))]); "
        "import structlog; structlog.get_logger().info('three')"
    )
    number = '"worker": 7' if form == "json" else "worker=7"
    lines = logged(code, f"form={form!r}, worker=7")
    assert [number in line.replace('":7', '": 7') for line in lines] == [True] * 3


def test_several_processes_write_whole_lines_to_one_pipe() -> None:
    code = LINES + (
        "import os, select, gateway.foundation.logs as logs\n"
        "sizes, write = [], os.write\n"
        "def measured(to, data):\n"
        "    sizes.append((len(data), bytes(data[-1:])))\n"
        "    return write(to, data)\n"
        "logs.os.write = measured\n"
        "write_lines([(0, Line(event='e', path='x' * size)) for size in [300] * 40 + [9000] + [300] * 3])\n"
        "assert all(end == b'\\n' for _, end in sizes), sizes\n"
        "assert [size > select.PIPE_BUF for size, _ in sizes].count(True) == 1, sizes\n"
        "assert len(sizes) < 10, sizes\n"
    )
    assert len(logged(code, "worker=1")) == 44
