"""Documents that a client may keep, and conditional requests for them: If-None-Match before If-Modified-Since.

Source: RFC 9110, sections 8.8 and 13; RFC 9111.
"""

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Generic, TypeVar

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from gateway.a2a.errors import MethodNotAllowed
from gateway.http.reply import JSON, Headers, Reply, rest_reply

State = TypeVar("State")

_MAX_AGE = 300
READS = ("GET", "HEAD")
READ_ONLY = MethodNotAllowed("this address is read only")
_READ_ONLY = rest_reply(READ_ONLY, allowed=READS)
_CREDENTIALS = b"authorization, x-api-key, a2a-version, accept"


class CachedDocument:
    """An ASGI application: a document that stays the same until the process ends, for everybody."""

    def __init__(
        self,
        body: bytes,
        started: datetime,
        alike: bytes | None = None,
        *,
        media_type: bytes = JSON,
        more: Headers = (),
    ) -> None:
        """`started` is the time since which the document is valid. `alike` is given where the bytes of the body are left to
        chance in part, as signatures are: two bodies with the same `alike` say the same. `more` are further headers."""
        self._started = started.replace(microsecond=0)
        self._etag = _etag(body) if alike is None else b"W/" + _etag(alike)
        headers: Headers = (
            (b"cache-control", b"public, max-age=%d" % _MAX_AGE),
            (b"etag", self._etag),
            (b"last-modified", format_datetime(started.astimezone(UTC), usegmt=True).encode()),
            *more,
        )
        self._whole = Reply(body, media_type=media_type, headers=headers)
        self._unchanged = Reply(b"", 304, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in READS:
            await _READ_ONLY(scope, receive, send)
        elif _is_known(scope, self._etag, self._started):
            await self._unchanged(scope, receive, send)
        else:
            await self._whole(scope, receive, send)


class LateDocument(Generic[State]):
    """An ASGI application: a document that is made of a state when it is first asked for, and again when the state is another.
    It is made outside of the event loop, by one request for all that wait."""

    def __init__(self, make: Callable[[State], CachedDocument], state: Callable[[], State]) -> None:
        self._make = make
        self._state = state
        self._made: tuple[State, CachedDocument] | None = None
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._making:
            state = self._state()
            if self._made is None or self._made[0] != state:
                self._made = (state, await asyncio.to_thread(self._make, state))
            _, document = self._made
        await document(scope, receive, send)


def private_document(reply: Reply, scope: Scope, alike: bytes | None = None) -> Reply:
    """The reply to a GET whose body depends on the caller: only the caller's own cache may keep it, and asks each time.
    `alike` is as for a CachedDocument."""
    etag = _etag(reply.body) if alike is None else b"W/" + _etag(alike)
    headers: Headers = (
        *reply.headers,
        (b"cache-control", b"private, no-cache"),
        (b"etag", etag),
        (b"vary", _CREDENTIALS),
    )
    if _is_known(scope, etag, None):
        return Reply(b"", 304, headers=headers)
    return replace(reply, headers=headers)


def _etag(body: bytes) -> bytes:
    return b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()


def _is_known(scope: Scope, etag: bytes, modified: datetime | None) -> bool:
    """Whether the client has this state of the document."""
    named = [value for name, value in scope["headers"] if name == b"if-none-match"]
    if named:
        # A weak comparison with any of the list, and `*` is any.
        listed = [tag.strip().removeprefix(b"W/") for value in named for tag in value.split(b",")]
        return etag.removeprefix(b"W/") in listed or b"*" in listed
    since = [value for name, value in scope["headers"] if name == b"if-modified-since"]
    return modified is not None and len(since) == 1 and _is_since(since[0], modified)


def _is_since(value: bytes, modified: datetime) -> bool:
    """Whether nothing has changed since this date. What is no date of HTTP is ignored."""
    try:
        date = parsedate_to_datetime(value.decode("ascii"))
    except (ValueError, TypeError):
        return False
    return date.utcoffset() == timedelta(0) and modified <= date
