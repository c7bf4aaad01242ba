"""Two pages on the health of the process. `/livez` answers when the process and its event loop run. `/readyz` says
whether the process accepts requests: the database can be read and written, and no drain has begun.

Law: `/readyz?verbose` names every check; no text of a database or backend is sent to the client.
"""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.http.reply import Reply
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Ledger

log = structlog.get_logger("gateway.http.health")

_CHANGES = "changes"


class Health:
    def __init__(self, ledger: Ledger, drain: asyncio.Event) -> None:
        self._ledger = ledger
        self._drain = drain

    def routes(self) -> list[Route]:
        return [Route("/livez", self), Route("/readyz", self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        checks = {"loop": "ok"} if scope["path"] == "/livez" else await self._ready()
        ready = _is_ready(checks)
        body: dict[str, object] = {"status": "ok" if ready else "unavailable"}
        if b"verbose" in scope["query_string"]:
            body["checks"] = checks
        reply = Reply(msgspec.json.encode(body), 200 if ready else 503, headers=((b"cache-control", b"no-store"),))
        await reply(scope, receive, send)

    async def ready(self) -> bool:
        """Whether the process accepts requests."""
        return _is_ready(await self._ready())

    async def _ready(self) -> dict[str, str]:
        checks = {"database": "ok", "draining": "yes" if self._drain.is_set() else "no"}
        try:
            await self._ledger.ready()
        except LedgerUnavailable as error:
            log.warning("database.unavailable", error=str(error))
            checks["database"] = error.trouble
        hears = self._ledger.hears()
        if hears is not None:
            checks[_CHANGES] = hears
        return checks


def _is_ready(checks: Mapping[str, str]) -> bool:
    """A process that hears late of others is ready."""
    return all(value in ("ok", "no") for name, value in checks.items() if name != _CHANGES)
