"""The first check of a request: its size, and the host name that it is sent to. Law: a web page must not reach a gateway that
listens only for its own machine, whatever the page's DNS says.

Source: DNS rebinding, as in CVE-2025-66416.
"""

from collections.abc import Awaitable
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.foundation.addresses import is_loopback
from gateway.http.reply import Reply, status_body

_HEADER_BYTES = 32 * 1024
_HEADER_FIELDS = 100
_URL_BYTES = 8 * 1024
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def allowed_hosts(bind_host: str, public_url: str) -> frozenset[str] | None:
    """The names under which a gateway on a loopback address answers; None where it answers under any name."""
    if not is_loopback(bind_host):
        return None
    public = _name(public_url)
    return _OWN_NAMES | {bind_host, *([public] if public else [])}


def _refusal(status: int, name: str, message: str) -> Reply:
    return Reply(status_body(status, name, message), status)


_URL_TOO_LONG = _refusal(414, "INVALID_ARGUMENT", f"the URL is longer than {_URL_BYTES} bytes")
_HEADERS_TOO_LARGE = _refusal(
    431, "INVALID_ARGUMENT", f"there are more than {_HEADER_FIELDS} headers, or more than {_HEADER_BYTES} bytes of them"
)
_NOT_ONE_HOST = _refusal(400, "INVALID_ARGUMENT", "a request names exactly one Host")
_FOREIGN_ORIGIN = _refusal(
    403,
    "PERMISSION_DENIED",
    "this gateway listens for its own machine alone, and does not answer pages from this Origin, unless server.public_url is "
    "set to it",
)


def _foreign_host(hosts: frozenset[str]) -> Reply:
    """The refusal of a gateway that answers to these names."""
    remote = sorted(name for name in hosts if not is_loopback(name))
    text = "this gateway listens for its own machine alone, and does not answer under the name in Host; "
    if remote:
        text += (
            f"besides its own names it answers to {', '.join(remote)}, as server.public_url says: a proxy in front of it must "
            "pass on the Host that its client has sent"
        )
    else:
        text += "a proxy in front of it needs server.public_url to be set to the address that clients use"
    return _refusal(421, "FAILED_PRECONDITION", text)


class HostGuard:
    """ASGI middleware around everything that the process serves."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        """`hosts` are names without ports; None admits every name."""
        self._app = app
        self._hosts = hosts
        self._foreign = _foreign_host(hosts or frozenset())

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        return (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Reply | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _URL_BYTES:
            return _URL_TOO_LONG
        size, hosts, origins = 0, [], []
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
        if size > _HEADER_BYTES or len(headers) > _HEADER_FIELDS:
            return _HEADERS_TOO_LARGE
        if len(hosts) != 1:
            # HTTP/1.0 has no Host, and some health checks speak HTTP/1.0.
            is_old = self._hosts is None and not hosts and scope["http_version"] == "1.0"
            return None if is_old else _NOT_ONE_HOST
        if self._hosts is None:
            return None
        if _host(b"//" + hosts[0]) not in self._hosts:
            return self._foreign
        for origin in origins:
            if _host(origin) not in self._hosts:
                return _FOREIGN_ORIGIN
        return None


@lru_cache(maxsize=64)
def _host(value: bytes) -> str | None:
    """The name in `//name:port` or in an origin, in lower case; None where there is none."""
    try:
        return _name(value.decode("ascii"))
    except ValueError:
        return None


def _name(url: str) -> str | None:
    """The host of the URL. A dot at its end only says that nothing follows. Raises: ValueError."""
    host = urlsplit(url).hostname
    return None if host is None else host.removesuffix(".")
