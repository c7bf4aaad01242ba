"""Lines of the standard library's logging, which adapters, libraries and an operator's functions use."""

import json
import subprocess
import sys

CONFIGURED = "import logging; from gateway.foundation.logs import configure_logging; configure_logging(); "


def logged(code: str) -> list[str]:
    """The lines that a process with the gateway's logs writes to its standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", CONFIGURED + code], check=True, capture_output=True, text=True, timeout=60
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


def test_anything_below_a_warning_is_not_written() -> None:
    code = "some = logging.getLogger('some.library'); some.setLevel('DEBUG'); some.info('connected')"

    assert logged(code) == []


def test_a_function_that_configures_logging_keeps_its_configuration() -> None:
    code = "logging.basicConfig(level='INFO', format='%(message)s'); logging.getLogger('mine').info('as I like it')"

    assert logged(code) == ["as I like it"]


def test_a_line_is_written_in_one_piece() -> None:
    """Otherwise lines of two threads are mixed where Python's own output is not buffered."""
    code = (
        "import structlog, sys; pieces = []; "
        "sys.stderr = type('Told', (), {'write': lambda _, text: pieces.append(text), 'flush': lambda _: None})(); "
        "structlog.get_logger('gateway.some').info('one'); logging.getLogger('two').warning('two'); "
        "sys.stderr = sys.__stderr__; print(*pieces, sep='', end='', file=sys.stderr); "
        "assert len(pieces) == 2, pieces"
    )

    assert [json.loads(line)["event"] for line in logged(code)] == ["one", "two"]
