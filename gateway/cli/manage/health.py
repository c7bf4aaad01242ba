"""`health`: asks a gateway whether it is alive or ready.

Law: imports no client, and models only for the words of an error, so that it starts quickly: a container runs it every few
seconds.
"""

import http.client
import os
import sys
from pathlib import Path

from gateway.cli.console.address import check_trust, http_get, read_url
from gateway.cli.console.output import ExitCode, Stop, visible
from gateway.cli.console.parameters import DEFAULT_FILE
from gateway.config.files import read_text
from gateway.config.listening import misspelled_server_variables, plain_address, read_server
from gateway.config.problems import ConfigInvalid
from gateway.foundation.addresses import local_url

_TIMEOUT = 4.0


def print_health(url: str | None, file: Path | None, *, live: bool) -> None:
    """Raises: Stop (69) with the reason, Stop (78) where the configuration does not say where its gateway listens."""
    base = (read_url(url) if url else _listening(file)).rstrip("/")
    address = f"{base}{'/livez' if live else '/readyz'}"
    if address.startswith("https:"):
        check_trust()
    try:
        status, answered = http_get(address, _TIMEOUT, 10_000)
    except TimeoutError as error:
        raise Stop(ExitCode.UNREACHABLE, f"{address} did not answer within {_TIMEOUT:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise Stop(ExitCode.UNREACHABLE, f"{address} cannot be reached: {_why(error)}") from error
    except ValueError as error:  # a host that no name can be
        raise Stop(ExitCode.UNREACHABLE, f"{address} cannot be reached: there is no such host") from error
    if status != http.HTTPStatus.OK:
        body = answered.decode(errors="replace").strip()
        raise Stop(ExitCode.UNREACHABLE, f"{address} answered {status}: {body}")
    sys.stdout.write("alive\n" if live else "ready\n")


def _why(error: Exception) -> str:
    # This module is not needed where a gateway answers.
    from gateway.foundation.tls import tls_problem

    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return tls_problem(error) or reason.lower()


def _listening(file: Path | None) -> str:
    """Where the gateway of this file listens, or that of gateway.yaml if there is one; variables win over both."""
    if file is None and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    for problem in misspelled_server_variables(os.environ):
        sys.stderr.write(visible(f"warning: {problem}\n"))
    try:
        host, port = _address(file)
    except ConfigInvalid as error:
        raise Stop(ExitCode.CONFIG_INVALID, str(error)) from error
    if port == 0:
        raise Stop(ExitCode.USAGE, "the system chooses the port of this gateway; say which: health -u URL")
    return local_url(host, port)


def _address(file: Path | None) -> tuple[str, int]:
    """Raises: ConfigInvalid, Stop."""
    folder = (file or Path()).resolve().parent
    try:
        text = "" if file is None else read_text(file)
    except ValueError as error:
        problem = f"{error}; name another with -c FILE, or the address of the gateway with -u URL"
        raise Stop(ExitCode.CONFIG_INVALID, problem) from error
    document = read_server(text, str(file or ""), os.environ, folder)
    found = plain_address(document)
    if found is None:
        from gateway.config.loader import load_server
        from gateway.config.plugins import Registry

        server = load_server(document, Registry(), folder)
        found = server.host, server.port
    return found
