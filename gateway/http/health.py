"""`/livez`: the process and its loop. `/readyz`: may it be sent requests: the database answers and takes writes, and it is
not draining.

Law: `/readyz?verbose` names every check; no text of a database or backend is told.

The first look at a request: its size, and under which name it came. Law: a web page must not reach a gateway that only
listens for its own machine, whatever its DNS says.

Source of the second: DNS rebinding, as in CVE-2025-66416.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec
import structlog
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.foundation.addresses import is_loopback
from gateway.http.replies import Reply
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Ledger

log = structlog.get_logger("gateway.health")


class Health:
    def __init__(self, ledger: Ledger, drain: asyncio.Event) -> None:
        self._ledger = ledger
        self._drain = drain

    def routes(self) -> list[Route]:
        return [Route("/livez", _Endpoint(self._live)), Route("/readyz", _Endpoint(self._ready))]

    async def _live(self, verbose: bool) -> Reply:
        return _report({"loop": "ok"}, verbose=verbose)

    async def _ready(self, verbose: bool) -> Reply:
        checks = {"database": "ok", "draining": "yes" if self._drain.is_set() else "no"}
        try:
            await self._ledger.ready()
        except LedgerUnavailable as error:
            log.warning("database.unavailable", error=str(error))
            checks["database"] = error.trouble
        return _report(checks, verbose=verbose)


def _report(checks: dict[str, str], *, verbose: bool) -> Reply:
    ready = all(value in ("ok", "no") for value in checks.values())
    body: dict[str, object] = {"status": "ok" if ready else "unavailable"}
    if verbose:
        body["checks"] = checks
    return Reply(msgspec.json.encode(body), 200 if ready else 503, headers=((b"cache-control", b"no-store"),))


class _Endpoint:
    def __init__(self, check: Callable[[bool], Awaitable[Reply]]) -> None:
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        verbose = b"verbose" in scope["query_string"]
        await (await self._check(verbose))(scope, receive, send)


_HEADER_BYTES = 32 * 1024
_HEADER_FIELDS = 100
_URL_BYTES = 8 * 1024


def allowed_hosts(bind_host: str, public_url: str) -> frozenset[str] | None:
    """The names under which a gateway on a loopback address answers; None, where any will do."""
    if not is_loopback(bind_host):
        return None
    public = urlsplit(public_url).hostname
    return frozenset({"localhost", "127.0.0.1", "::1", bind_host, *([public] if public else [])})


def _refusal(status: int, name: str, message: str) -> Reply:
    return Reply(msgspec.json.encode({"error": {"code": status, "status": name, "message": message}}), status)


_URL_TOO_LONG = _refusal(414, "INVALID_ARGUMENT", f"the URL is longer than {_URL_BYTES} bytes")
_HEADERS_TOO_LARGE = _refusal(
    431, "INVALID_ARGUMENT", f"there are more than {_HEADER_FIELDS} headers, or more than {_HEADER_BYTES} bytes of them"
)
_NOT_ONE_HOST = _refusal(400, "INVALID_ARGUMENT", "a request names exactly one Host")
_FOREIGN_HOST = _refusal(421, "FAILED_PRECONDITION", "this gateway does not answer under the name in Host")
_FOREIGN_ORIGIN = _refusal(403, "PERMISSION_DENIED", "this gateway does not answer pages from this Origin")


class HostGuard:
    """ASGI middleware around everything that the process serves."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        """`hosts` are names without ports; None lets every name pass."""
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._judge(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _judge(self, scope: Scope) -> Reply | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _URL_BYTES:
            return _URL_TOO_LONG
        size, named, origins = 0, [], []
        for name, value in headers:
            size += len(name) + len(value)
            if name == b"host":
                named.append(value)
            elif name == b"origin":
                origins.append(value)
        if size > _HEADER_BYTES or len(headers) > _HEADER_FIELDS:
            return _HEADERS_TOO_LARGE
        if self._hosts is None:
            # HTTP/1.0 has no Host, and health checks still speak it.
            return None if len(named) == 1 or (not named and scope["http_version"] == "1.0") else _NOT_ONE_HOST
        if len(named) != 1 or _host(b"//" + named[0]) not in self._hosts:
            return _FOREIGN_HOST
        for origin in origins:
            if _host(origin) not in self._hosts:
                return _FOREIGN_ORIGIN
        return None


@lru_cache(maxsize=64)
def _host(value: bytes) -> str | None:
    """The name in `//name:port` or in an origin, in lower case; None where there is none."""
    try:
        return urlsplit(value.decode("ascii")).hostname
    except ValueError:
        return None
