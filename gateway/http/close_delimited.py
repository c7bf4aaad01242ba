"""Responses to HTTP/1.0, which has no chunks (RFC 9112, section 6.1). Law: one without a length ends with its connection.

Source: docs/adr/0015. uvicorn sends every response without a length in chunks.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def close_delimited(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """The application, for one request of HTTP/1.0 and its cycle."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        endless = False

        async def send_whole(message: Message) -> None:
            nonlocal endless
            if message["type"] == "http.response.start":
                endless = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
                if endless:
                    cycle.chunked_encoding = False
            elif endless:
                # uvicorn then expects as many bytes as come.
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_whole)

    return respond
