"""Errors of the client: exit codes and texts."""

import pytest

from gateway.cli.console.connect import client_errors_stop, stop_for
from gateway.cli.console.output import Stop
from gateway.client.transport import ClientError, NotA2A, Refused, StreamLost, TlsFailed, Unreachable


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (Unreachable("no"), 69, "no\nIs it running? Another address is given with -u URL."),
        (TlsFailed("expired"), 69, "expired"),
        (NotA2A("no card"), 69, "no card"),
        (StreamLost("lost"), 75, "lost"),
        (ClientError("odd"), 1, "odd"),
        (
            Refused("who?", status=401),
            77,
            (
                "not authorised: who?\n"
                "Give an API key that is in force (--key, or A2A_GATEWAY_KEY) or --header 'Authorization: ...'"
            ),
        ),
        (
            Refused("no", status=403),
            77,
            (
                "not authorised: no\n"
                "Give a key that may do this (--key, or A2A_GATEWAY_KEY); for the admin API: keys create NAME --admin"
            ),
        ),
        (Refused("busy", status=503, retry_after=2), 75, "busy\nTry again in 2 s."),
        (Refused("slow down", status=429), 75, "slow down\nTry again later."),
        (Refused("down", status=502), 69, "down"),
        (
            Refused("http://h/x answered HTTP 404 Not Found", status=404, unexplained=True),
            69,
            (
                "http://h/x answered HTTP 404 Not Found\n"
                "There is no A2A agent at this address. Another is given with -u URL."
            ),
        ),
        (Refused("Task not found", status=200, code=-32001), 1, "the agent refused: Task not found"),
    ],
)
def test_an_error_has_an_exit_code_and_words(error: ClientError, code: int, text: str) -> None:
    with pytest.raises(Stop) as caught, client_errors_stop():
        raise error
    assert (caught.value.code, caught.value.text) == (code, text)
    assert stop_for(error).text == text
