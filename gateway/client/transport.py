"""The base of every call of the client: errors in plain words, connections, and access to untrusted JSON.

Law: no type of the HTTP library leaves the client's modules; no response is trusted to have a shape.
"""

import json
import math
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from gateway.foundation.addresses import is_loopback
from gateway.foundation.causes import causes
from gateway.foundation.clock import Clock
from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE
from gateway.foundation.retry import parse_retry_after
from gateway.foundation.tls import ADDRESS_OF_TLS, client_context, tls_problem

Json = Any

VERSION = "1.0"
CONNECT = 10.0
"""Seconds to find the host and connect."""
_NO_ADDRESS = "NO_SUCH_ADDRESS"
"""The gateway's reason for a 404 of an address that it does not have."""


# --- errors -----------------------------------------------------------------------------------------------------------


class ClientError(Exception):
    """Base of the client's errors; the text is for a person."""


class Unreachable(ClientError):
    """There is no answer, or not a complete one."""


class TlsFailed(Unreachable):
    """There is no safe connection. The text says why, and what helps."""


class NoConnection(Unreachable):
    """No connection was made: to the server, or to the proxy in front of it, or the proxy refused to go on."""


class NotA2A(ClientError):
    """The server does not speak A2A 1.0, or not over a binding that the client knows."""


class StreamLost(ClientError):
    """The stream broke off and cannot be resumed."""


@dataclass(eq=False)
class Refused(ClientError):
    """The agent answered with an error. `status` is the HTTP status, `code` the code of JSON-RPC.

    `task` is the conflicting task, if the agent names it. `unexplained` says that the answer gives no reason.
    """

    message: str
    _: KW_ONLY
    status: int
    code: int | None = None
    reason: str | None = None
    retry_after: float | None = None
    task: str | None = None
    unexplained: bool = False

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def temporary(self) -> bool:
        return self.status in {429, 502, 503, 504}


@contextmanager
def http_errors(url: str) -> Iterator[None]:
    """Maps the errors of httpx2 in its block. Raises: Unreachable."""
    try:
        yield
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise Unreachable(f"{url} is no address that can be called: {error}") from error
    except httpx2.RequestError as error:
        problem = tls_problem(error, "--ca")
        if problem is not None:
            raise TlsFailed(f"{url} cannot be reached: {problem}") from error
        no_connection = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError)
        kind = NoConnection if no_connection else Unreachable
        raise kind(f"{url} cannot be reached: {_why(error)}") from error


def _why(error: httpx2.RequestError) -> str:
    match error:
        case httpx2.ConnectTimeout():
            return f"no connection within {CONNECT:g} s"
        case httpx2.ProxyError():
            return f"the proxy answers {error}"
        case httpx2.TimeoutException():
            return "it went silent"
        case httpx2.RemoteProtocolError() if str(error).startswith("Server disconnected"):
            return f"it closed the connection without an answer{_hint(error)}"
        case httpx2.RemoteProtocolError() if str(error).startswith("illegal"):
            return f"what it answers is no HTTP{_hint(error)}"
        case httpx2.RemoteProtocolError() | httpx2.ReadError():
            return "it closed the connection before its answer was complete"
    for cause in causes(error):
        match cause:
            case ConnectionRefusedError():
                return "connection refused"
            case socket.gaierror():
                return "there is no such host"
    return str(error) or type(error).__name__


def _hint(error: httpx2.RequestError) -> str:
    """For an answer that a server of TLS may give to a request in plain text."""
    return f"; {ADDRESS_OF_TLS}" if error.request.url.scheme == "http" else ""


# --- connections ------------------------------------------------------------------------------------------------------


def open_http(
    url: str, headers: Mapping[str, str] | None = None, ca: Path | None = None, proxy: str | None = None
) -> httpx2.AsyncClient:
    """A connection pool for one agent. A proxy of the environment is not used for addresses of this machine. `ca` as in
    `client_context`."""
    return httpx2.AsyncClient(
        headers={"A2A-Version": VERSION, **(headers or {})},
        timeout=httpx2.Timeout(CONNECT, read=None),
        limits=httpx2.Limits(keepalive_expiry=CLIENT_KEEP_ALIVE),
        trust_env=not _is_local(url),
        verify=client_context(ca),
        proxy=proxy,
    )


def _is_local(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


# --- untrusted JSON ---------------------------------------------------------------------------------------------------


def json_at(value: Json, *path: str) -> Json:
    """The value at a path of object keys, None where there is none."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text_at(value: Json, *path: str) -> str | None:
    """The text at a path of object keys, None where there is none or another value."""
    found = json_at(value, *path)
    return found if isinstance(found, str) and found else None


def objects(value: Json, key: str) -> list[dict[str, Json]]:
    """The objects in the list under `key`; none where the value is no list."""
    found = json_at(value, key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def decode(text: str | bytes) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_json(response: httpx2.Response) -> Json:
    return decode(response.content)


def refused_from(response: httpx2.Response, body: Json) -> Refused:
    error = json_at(body, "error")
    details: Sequence[Json] = [*objects(error, "data"), *objects(error, "details")]
    code, message = json_at(error, "code"), json_at(error, "message")
    retry_after = parse_retry_after(response.headers, Clock().now())
    location = response.headers.get("location")
    reason = next((str(detail["reason"]) for detail in details if "reason" in detail), None)
    text = message if isinstance(message, str) and message and reason != _NO_ADDRESS else None
    return Refused(
        text or _http_error(response, location),
        status=response.status_code,
        code=code if isinstance(code, int) and code < 0 else None,
        reason=reason,
        retry_after=None if retry_after is None else float(math.ceil(retry_after)),
        task=next((task for detail in details if (task := text_at(detail, "metadata", "taskId"))), None),
        unexplained=text is None,
    )


def _http_error(response: httpx2.Response, location: str | None) -> str:
    text = f"{response.request.url} answered HTTP {response.status_code} {response.reason_phrase}".rstrip()
    if response.status_code == 400 and response.request.url.scheme == "http" and b"HTTPS" in response.content:
        # So answer nginx, Go and Apache to a request in plain text.
        return f"{text}; {ADDRESS_OF_TLS}"
    return f"{text} and points to {location}; use that address" if location else text
