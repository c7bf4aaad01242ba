"""Errors of the client as ends of commands."""

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.cli.exits import ExitCode, Stop
from gateway.client_admin import NotOurGateway
from gateway.client_wire import ClientError, NotA2A, Refused, StreamLost, Unreachable


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
        case 401 | 403:
            return Stop(
                ExitCode.NOT_AUTHORISED,
                f"not authorised: {error}\nGive an API key (--key, or A2A_GATEWAY_KEY) or --header 'Authorization: ...'",
            )
        case 429 | 503:
            when = f"in {error.retry_after:g} s" if error.retry_after else "later"
            return Stop(ExitCode.TRY_AGAIN, f"{error}\nTry again {when}.")
        case status if status >= 500:
            return Stop(ExitCode.UNREACHABLE, f"{error}")
        case _:
            return Stop(ExitCode.UNEXPECTED, f"the agent refused: {error}")
