"""`/livez`: the process and its loop. `/readyz`: may it be sent requests: the database answers and takes writes, and it is
not draining.

Law: `/readyz?verbose` names every check; no text of a database or backend is told.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.bindings.reply import Reply
from gateway.commits.failures import LedgerUnavailable
from gateway.ledger_port import Ledger

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
