"""`health`: asks a gateway whether it is alive or ready.

Law: imports no client, so that it starts quickly: a container runs it every few seconds.
"""

import http.client
import os
import sys
from urllib.parse import urlsplit

from gateway.cli.console.address import read_url
from gateway.cli.console.exits import ExitCode, Stop

_TIMEOUT = 4.0


def print_health(url: str | None, *, live: bool) -> None:
    """Raises: Stop (69) with the reason."""
    base = read_url(url or f"http://127.0.0.1:{os.environ.get('A2A_GATEWAY__SERVER__PORT') or 8080}").rstrip("/")
    address = f"{base}{'/livez' if live else '/readyz'}"
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    try:
        connection.request("GET", parts.path)
        response = connection.getresponse()
        body = response.read(10_000).decode(errors="replace").strip()
    except TimeoutError as error:
        raise Stop(ExitCode.UNREACHABLE, f"{address} did not answer within {_TIMEOUT:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise Stop(ExitCode.UNREACHABLE, f"{address} cannot be reached: {reason.lower()}") from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise Stop(ExitCode.UNREACHABLE, f"{address} answered {response.status}: {body}")
    sys.stdout.write("alive\n" if live else "ready\n")
