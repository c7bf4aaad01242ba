"""The line of each request in the access log.

Law: the line holds nothing of a request but its address, method and path; a request without an answer has a line, too.
"""

from collections.abc import Awaitable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.foundation.access_log import AccessLog
from gateway.foundation.clock import Clock

_FACTS = "gateway.facts"


class RequestLog:
    """ASGI middleware around everything that the process serves."""

    def __init__(self, app: ASGIApp, access: AccessLog, clock: Clock) -> None:
        self._app = app
        self._access = access
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        facts: dict[str, Any] = {"method": scope["method"], "path": scope["path"]}
        scope[_FACTS] = facts
        began, status = self._clock.monotonic(), 0

        # Not a coroutine of its own: a stream sends many messages.
        def noted(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            peer = scope.get("client")
            facts["status"] = int(status)
            facts["ms"] = round((self._clock.monotonic() - began) * 1000, 1)
            facts["peer"] = peer[0] if peer else None
            del scope[_FACTS]
            self._access.add("request", facts)


def note(scope: Scope, **facts: str) -> None:
    """Adds facts to the line of this request, where it gets one."""
    found = scope.get(_FACTS)
    if found is not None:
        found.update(facts)
