"""The ends of commands. Source: sysexits.h for 69 to 78; 10 to 15 stand for the state of a task."""

from enum import IntEnum


class ExitCode(IntEnum):
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

    def __init__(self, code: ExitCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
