"""A WebSocket to a backend: frames of text in both directions. Law: only the server's own close ends it; a connection that is
lost or answers no ping is an AdapterError.

Source: RFC 6455.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Self

import aiohttp
from aiohttp import WSMsgType

from adapters.http.bodies import ERROR_LIMIT, beginning
from adapters.http.failures import Failures
from gateway.ports.adapter import AdapterError, ErrorClass

_SWITCHING = 101
_TOO_LARGE = aiohttp.WSCloseCode.MESSAGE_TOO_BIG


class HandshakeRefused(Exception):
    """The server answers a handshake as any other request."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


async def refuse_answers(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Middleware of a session for handshakes. It keeps aiohttp from redirects, which would take the credentials along, and
    the body of a refusal for its error. Raises: HandshakeRefused."""
    response = await handler(request)
    if response.status == _SWITCHING:
        return response
    try:
        body = await beginning(response.content, ERROR_LIMIT)
    finally:
        response.close()
    raise HandshakeRefused(response.status, response.headers, body)


class WebSocket:
    """One connection, which `async with` opens and closes. Iterating gives the text of each frame, until the server closes."""

    def __init__(self, connect: Callable[[], Awaitable[aiohttp.ClientWebSocketResponse]], failures: Failures) -> None:
        self.close_code: int | None = None
        """The server's reason, once it has closed. Source: RFC 6455, section 7.4.1."""
        self._connect = connect
        self._failures = failures

    async def __aenter__(self) -> Self:
        self._socket = await self._connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._socket.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        frame = await self._socket.receive()
        match frame.type:
            case WSMsgType.TEXT:
                text: str = frame.data
                return text
            case WSMsgType.CLOSE | WSMsgType.CLOSING:
                self.close_code = self._socket.close_code
                raise StopAsyncIteration
            case WSMsgType.BINARY:
                raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a frame of bytes where text is expected")
            case _:
                raise self._lost(self._socket.exception() or frame.data)

    async def send(self, text: str) -> None:
        """Raises: AdapterError."""
        try:
            await self._socket.send_str(text)
        except (aiohttp.ClientError, OSError) as error:
            raise self._lost(self._socket.exception() or error) from error

    def _lost(self, error: object) -> AdapterError:
        """The error for a connection that has ended with `error`, or without a word."""
        match error:
            case TimeoutError():
                return self._failures.error(ErrorClass.TIMED_OUT, f"the connection stalled: {error}")
            case aiohttp.WebSocketError(code=code):
                why = "a frame is too large" if code == _TOO_LARGE else f"a frame is broken: {error}"
                return self._failures.error(ErrorClass.CONTRACT_BROKEN, why)
            case None:
                return self._failures.error(ErrorClass.INTERRUPTED, "the connection was cut")
        return self._failures.error(ErrorClass.INTERRUPTED, f"the connection was cut: {error}")
