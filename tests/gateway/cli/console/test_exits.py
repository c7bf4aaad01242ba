"""Exit codes, on which scripts depend."""

from gateway.cli.console.output import OF_STATE, ExitCode, Stop
from gateway.client.client import ENDED, WAITING


def test_the_exit_codes_stay_what_they_are() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0,
        "UNEXPECTED": 1,
        "USAGE": 2,
        "FAILED": 10,
        "CANCELED": 11,
        "REJECTED": 12,
        "INPUT_REQUIRED": 13,
        "AUTH_REQUIRED": 14,
        "TIMED_OUT": 15,
        "UNREACHABLE": 69,
        "TRY_AGAIN": 75,
        "NOT_AUTHORISED": 77,
        "CONFIG_INVALID": 78,
        "INTERRUPTED": 130,
    }


def test_every_state_in_which_a_task_stops_has_an_exit_code_of_its_own() -> None:
    assert set(OF_STATE) == ENDED | WAITING
    assert len(set(OF_STATE.values())) == len(OF_STATE)


def test_a_stop_carries_its_code_and_text() -> None:
    stop = Stop(ExitCode.USAGE, "no such thing")
    assert (stop.code, stop.text, str(stop)) == (2, "no such thing", "no such thing")
