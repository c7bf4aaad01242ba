"""Errors of the client as ends of commands."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.cli.exits import ExitCode, Stop
from gateway.cli.reaching import Reach
from gateway.client_admin import NotOurGateway
from gateway.client_wire import ClientError, NotA2A, Refused, StreamLost, Unreachable

_TASK_NOT_FOUND = -32001


@contextmanager
def told_plainly() -> Iterator[None]:
    """Raises: Stop for every ClientError."""
    try:
        yield
    except ClientError as error:
        raise stop(error) from error


def stop(error: ClientError) -> Stop:
    match error:
        case Refused():
            return _refused(error)
        case Unreachable():
            return Stop(ExitCode.UNREACHABLE, f"{error}\nIs it running? Another address is given with -u URL.")
        case NotA2A() | NotOurGateway():
            return Stop(ExitCode.UNREACHABLE, str(error))
        case StreamLost():
            return Stop(ExitCode.TRY_AGAIN, str(error))
        case _:
            return Stop(ExitCode.UNEXPECTED, str(error))


def _refused(error: Refused) -> Stop:
    match error.status:
        case 401:
            remedy = "Give an API key that is in force (--key, or A2A_GATEWAY_KEY) or --header 'Authorization: ...'"
            return Stop(ExitCode.NOT_AUTHORISED, f"not authorised: {error}\n{remedy}")
        case 403:
            remedy = (
                "Give a key that may do this (--key, or A2A_GATEWAY_KEY); for the admin API: keys create NAME --admin"
            )
            return Stop(ExitCode.NOT_AUTHORISED, f"not authorised: {error}\n{remedy}")
        case 404 | 405 if error.mute:
            remedy = "There is no A2A agent at this address. Another is given with -u URL."
            return Stop(ExitCode.UNREACHABLE, f"{error}\n{remedy}")
        case 429 | 503:
            when = f"in {error.retry_after:g} s" if error.retry_after else "later"
            return Stop(ExitCode.TRY_AGAIN, f"{error}\nTry again {when}.")
        case status if status >= 500:
            return Stop(ExitCode.UNREACHABLE, f"{error}")
        case _:
            return Stop(ExitCode.UNEXPECTED, f"the agent refused: {error}")


@contextmanager
def looking_for(there: Reach, task: str) -> Iterator[None]:
    """Raises: Stop for a task that the agent does not know, and says where to look."""
    try:
        yield
    except Refused as error:
        if error.code != _TASK_NOT_FOUND and error.reason != "TASK_NOT_FOUND":
            raise
        text = f"there is no task {task!r} at {there.place}\nThose that are there: {there.command('tasks', 'list')}"
        raise Stop(ExitCode.UNEXPECTED, text) from error
