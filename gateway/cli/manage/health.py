"""`health`: asks a gateway whether it is alive or ready.

Law: imports no client, so that it starts quickly: a container runs it every few seconds.
"""

import http.client
import os
import sys

from gateway.cli.console.address import http_get, read_url
from gateway.cli.console.output import ExitCode, Stop

_TIMEOUT = 4.0


def print_health(url: str | None, *, live: bool) -> None:
    """Raises: Stop (69) with the reason."""
    base = read_url(url or f"http://127.0.0.1:{os.environ.get('A2A_GATEWAY__SERVER__PORT') or 8080}").rstrip("/")
    address = f"{base}{'/livez' if live else '/readyz'}"
    try:
        status, answered = http_get(address, _TIMEOUT, 10_000)
    except TimeoutError as error:
        raise Stop(ExitCode.UNREACHABLE, f"{address} did not answer within {_TIMEOUT:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise Stop(ExitCode.UNREACHABLE, f"{address} cannot be reached: {reason.lower()}") from error
    if status != http.HTTPStatus.OK:
        body = answered.decode(errors="replace").strip()
        raise Stop(ExitCode.UNREACHABLE, f"{address} answered {status}: {body}")
    sys.stdout.write("alive\n" if live else "ready\n")
