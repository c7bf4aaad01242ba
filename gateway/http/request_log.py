"""What is told of each request, such as its line in the access log.

Law: the line holds nothing of a request but its address, method and path; a request without an answer has a line, too.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.foundation.clock import Clock
from gateway.http.traced import TracedRequest
from gateway.ports.observer import Observer, RequestLine

_LINE = "gateway.line"

TRACED = "gateway.traced"
"""The key of a scope with the span of its request."""


class RequestLog:
    """ASGI middleware around everything that the process serves."""

    def __init__(self, app: ASGIApp, observer: Observer, clock: Clock) -> None:
        self._app = app
        self._observer = observer
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        line = scope[_LINE] = RequestLine(method=scope["method"], path=scope["path"])
        began = self._clock.monotonic()
        traced: TracedRequest | None = None
        if self._observer.traces:
            traced = scope[TRACED] = TracedRequest(self._observer, self._clock.now(), self._clock.row_id())

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
            if traced is not None:
                traced.end(line, self._clock.now())
            self._observer.request_ended(line)


def milliseconds(seconds: float) -> float:
    return int(seconds * 10_000 + 0.5) / 10


def line_of(scope: Scope) -> RequestLine:
    """The line of this request, or a line that is not written, where requests get none."""
    found: RequestLine | None = scope.get(_LINE)
    return RequestLine() if found is None else found
