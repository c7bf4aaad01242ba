"""Rows of a task as they change. Law: a row goes out when what it shows has changed, so a reconnect to any process needs
nothing; a stream ends with its task, its session's key, or the process.

sse-starlette frames and keeps alive; when the process ends is not left to it, because it watches for that where this gateway
does not say it (docs/adr/0040-pages.md).
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

from gateway.a2a.errors import NotFound
from gateway.http.reply import Reply
from gateway.ledger.errors import LedgerUnavailable
from gateway.ui.rendering import render_around, render_rows, render_state
from gateway.ui.security import UNCACHED
from gateway.ui.tasks import Filters, TaskView, head_of, number_of, view_of
from gateway.ui.visit import Outcome, Visit

_REST = 0.25
"""Seconds between two looks, however much changes."""

_LOOK = 5.0
"""Seconds after which it is looked without a hint of a change."""

_BLOCKED = 10.0
"""Seconds for which a reader may take nothing."""

_FULL = Reply(b"", 204, headers=UNCACHED)
"""A browser does not try again then."""


async def show(visit: Visit) -> Outcome:
    filters = Filters("all", "", number_of(visit, "after"), 0)
    await head_of(visit)
    if not visit.streams.has_room(visit.session.nonce):
        return _FULL
    headers = {name.decode(): value.decode() for name, value in UNCACHED}
    return _Response(_updates(visit, filters), headers=headers, send_timeout=_BLOCKED)


class _Response(EventSourceResponse):
    """A reader that takes nothing any more is no fault of anybody's."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except* SendTimeoutError:
            pass


async def _updates(visit: Visit, filters: Filters) -> AsyncIterator[ServerSentEvent]:
    parts, identity, task = visit.parts, visit.identity, visit.path["task"]
    assert identity is not None  # noqa: S101 - `Site` lets nobody else in
    seen: dict[str, str] = {}
    stopped = False
    with visit.streams.counted(visit.session.nonce), parts.runner.runtime.changes.heard({task}, wanted=True) as heard:

        def stop() -> None:
            nonlocal stopped
            stopped = True
            heard.set()

        with parts.drain.on_set(stop), parts.auth.on_revocation(identity, stop):
            while not stopped:
                try:
                    view = await view_of(visit, filters)
                except (LedgerUnavailable, NotFound):
                    return
                for event in await asyncio.to_thread(_changed, view, identity.caller.principal, seen):
                    yield event
                if view.ended:
                    yield ServerSentEvent(event="end", data="")
                    return
                await asyncio.sleep(_REST)
                if not stopped:
                    await heard.within(_LOOK)


def _changed(view: TaskView, principal: str, seen: dict[str, str]) -> list[ServerSentEvent]:
    """What is not as it was told; `seen` is brought up to date."""
    rows = render_rows(view.rows, view)
    found = [
        ("state", "state", render_state(view.task.state)),
        ("sentence", "sentence", view.sentence),
        *(("part", name, html) for name, html in render_around(view, principal).items()),
        *(("row", name, html) for name, html in rows.items()),
        # Behind the rows: where new ones stand, and which are gone, because many like ones have become one.
        ("order", "order", msgspec.json.encode([*rows]).decode()),
    ]
    events = [ServerSentEvent(event=event, data=text) for event, name, text in found if seen.get(name) != text]
    seen |= {name: text for _, name, text in found}
    return events
