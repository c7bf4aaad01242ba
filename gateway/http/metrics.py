"""The page of metrics. Law: where callers authenticate, the main port shows it to admin keys alone."""

from collections.abc import Callable
from functools import partial

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a.errors import NoSuchAddress
from gateway.http.arrival import arrival_of
from gateway.http.documents import READ_ONLY, READS
from gateway.http.pipeline import Pipeline
from gateway.http.reply import Reply, rest_reply

_TEXT = b"text/plain; version=0.0.4; charset=utf-8"
_NOT_FOUND = rest_reply(NoSuchAddress("nothing stands at this address"))

Page = Callable[[], bytes]
"""The text of a scrape."""


class MetricsPage(msgspec.Struct, frozen=True):
    """On the main port."""

    page: Page
    pipeline: Pipeline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refuse = partial(rest_reply, allowed=READS)
        await self.pipeline.respond(self._answer(scope), refuse, scope, receive, send)

    async def _answer(self, scope: Scope) -> ASGIApp:
        if scope["method"] not in READS:
            raise READ_ONLY
        await self.pipeline.admit(arrival_of(scope), None, for_admins="the page of metrics")
        return _reply(self.page)


class MetricsPort(msgspec.Struct, frozen=True):
    """On a port of its own, which whoever reaches it may read."""

    page: Page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in ("/metrics", "/"):
            answer: ASGIApp = _NOT_FOUND
        elif scope["method"] not in READS:
            answer = rest_reply(READ_ONLY, allowed=READS)
        else:
            answer = _reply(self.page)
        await answer(scope, receive, send)


def _reply(page: Page) -> Reply:
    return Reply(page(), media_type=_TEXT, headers=((b"cache-control", b"no-store"),))
