"""One whole HTTP response. Law: bytes and headers, ready to be sent; nothing is computed."""

from collections.abc import Sequence

import msgspec
from starlette.types import Receive, Scope, Send

Headers = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"


class Reply(msgspec.Struct, frozen=True):
    """An ASGI application that answers every request in the same way."""

    body: bytes
    status: int = 200
    media_type: bytes = JSON
    headers: Headers = ()

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        kind = [(b"content-type", self.media_type)] if self.body else []
        headers = [*kind, (b"content-length", b"%d" % len(self.body)), *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self.body})
