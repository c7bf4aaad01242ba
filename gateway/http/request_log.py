"""The line of each request in the access log.

Law: the line holds nothing of a request but its address, method and path; a request without an answer has a line, too.
"""

from collections.abc import Awaitable

from msgspec import UNSET, UnsetType
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.foundation.access_log import AccessLog
from gateway.foundation.clock import Clock
from gateway.foundation.logs import LogLine

_LINE = "gateway.line"


class RequestLine(LogLine, kw_only=True, gc=False):
    """The caller, agent and operation are unset for a request that is refused before they are known, and for one that has
    none. `status` is 0 without an answer. `ms` is the time until the end of the answer."""

    event: str = "request"
    method: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    principal: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    operation: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    status: int = 0
    ms: float | UnsetType = UNSET
    peer: str | None = None


class RequestLog:
    """ASGI middleware around everything that the process serves."""

    def __init__(self, app: ASGIApp, access: AccessLog, clock: Clock) -> None:
        self._app = app
        self._access = access
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = scope[_LINE] = RequestLine(method=scope["method"], path=scope["path"])
        began = self._clock.monotonic()

        # Not a coroutine of its own: a stream sends many messages.
        def noted(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                line.status = int(message["status"])
            return send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            peer = scope.get("client")
            line.peer = peer[0] if peer else None
            line.ms = milliseconds(self._clock.monotonic() - began)
            del scope[_LINE]
            self._access.add(line)


def milliseconds(seconds: float) -> float:
    return int(seconds * 10_000 + 0.5) / 10


def line_of(scope: Scope) -> RequestLine:
    """The line of this request, or a line that is not written, where requests get none."""
    found: RequestLine | None = scope.get(_LINE)
    return RequestLine() if found is None else found
