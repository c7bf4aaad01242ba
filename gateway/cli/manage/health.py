"""`health`: asks a gateway whether it is alive or ready.

Law: imports no client and no models, so that it starts quickly: a container runs it every few seconds.
"""

import http.client
import os
import sys
from pathlib import Path
from typing import TypeVar

from gateway.cli.console.address import http_get, read_url
from gateway.cli.console.output import ExitCode, Stop
from gateway.cli.console.parameters import DEFAULT_FILE
from gateway.config.files import read_text
from gateway.config.problems import ConfigInvalid, Problem, display, path_text
from gateway.config.yaml import Document, References, read, scalar
from gateway.foundation.addresses import local_url

_TIMEOUT = 4.0
_DEFAULTS: dict[str, str | int] = {"host": "127.0.0.1", "port": 8080}
_KINDS: dict[type, str] = {str: "text", int: "a whole number"}

T = TypeVar("T", str, int)


def print_health(url: str | None, file: Path | None, *, live: bool) -> None:
    """Raises: Stop (69) with the reason, Stop (78) where the configuration does not say where its gateway listens."""
    base = (read_url(url) if url else _listening(file)).rstrip("/")
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


def _listening(file: Path | None) -> str:
    """Where the gateway of this file listens, or that of gateway.yaml if there is one; variables win over both."""
    if file is None and DEFAULT_FILE.is_file():
        file = DEFAULT_FILE
    try:
        document = Document("") if file is None else _read(file)
        host, port = _setting(document, "host", str), _setting(document, "port", int)
    except (ConfigInvalid, ValueError) as error:
        raise Stop(ExitCode.CONFIG_INVALID, str(error)) from error
    if port == 0:
        raise Stop(ExitCode.USAGE, "the system chooses the port of this gateway; say which: health -u URL")
    return local_url(host, port)


def _read(file: Path) -> Document:
    """Raises: ConfigInvalid, ValueError."""
    return read(read_text(file), str(file), References(os.environ, file.resolve().parent))


def _setting(document: Document, name: str, kind: type[T]) -> T:
    """A setting of the section `server`. Raises: ConfigInvalid."""
    variable = f"A2A_GATEWAY__SERVER__{name.upper()}"
    given = next((text for key, text in os.environ.items() if key.upper() == variable and text), None)
    path = ("server", name)
    for unknown in () if given else (path[:1], path):
        if unknown in document.unknown:
            raise ConfigInvalid(document.unknown[unknown])
    server = document.data.get("server") if isinstance(document.data, dict) else None
    found = scalar(given) if given else server.get(name) if isinstance(server, dict) else None
    value = _DEFAULTS[name] if found is None else found
    if not isinstance(value, kind) or isinstance(value, bool):
        line, column = (place.value if (place := document.places.get(path)) else None) or (None, None)
        message = f"must be {_KINDS[kind]}, not {display(value)}"
        problem = Problem(document.source or None, line, column, variable if given else path_text(path), message)
        raise ConfigInvalid([problem])
    return value
