"""All pages behind one door. Law: who is not an admin sees the login and nothing else; a form counts only with the token of its
session and from a page of this gateway; rendering never holds up the event loop."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, quote

import structlog
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a.errors import (
    A2AError,
    Busy,
    InvalidRequest,
    MethodNotAllowed,
    NoSuchAddress,
    PermissionDenied,
    UnsupportedMediaType,
)
from gateway.http.arrival import arrival_of
from gateway.http.documents import READS
from gateway.http.headers import query
from gateway.http.held import ClientGone
from gateway.http.pipeline import Pipeline
from gateway.http.reply import Reply, error_headers
from gateway.http.request_log import line_of
from gateway.ui.addresses import Address, area, find
from gateway.ui.parts import Parts
from gateway.ui.rendering import render
from gateway.ui.security import UNCACHED, Cookies, comes_from_elsewhere, is_overheard, stranger
from gateway.ui.sessions import LIFETIME, Sessions
from gateway.ui.static import file_at
from gateway.ui.streams import OpenStreams
from gateway.ui.visit import Away, Handler, Outcome, Page, Visit
from gateway.ui.wire import SessionAuthentication, Wire

log = structlog.get_logger("gateway.ui.site")

LOGIN = "/ui/login"
_AT_ONCE = 16
"""Pages that are made at the same time; the next one is refused."""

_HTML = b"text/html; charset=utf-8"
_FORM = b"application/x-www-form-urlencoded"
_FIELDS = 100
_REFRESH = (b"refresh", b"0")


class Site:
    """The application at /ui. `secret` signs the sessions."""

    def __init__(self, parts: Parts, secret: bytes) -> None:
        self._parts = parts
        self._sessions = Sessions(secret, parts.clock.now)
        self._cookies = Cookies(parts.public_url, self._sessions.installation)
        by_session = SessionAuthentication(parts.auth, self._sessions, self._cookies)
        self._pipeline: Pipeline = parts.serve_by(by_session)
        self._wire = Wire(self._pipeline)
        self._streams = OpenStreams()
        self._making = 0
        if parts.asks_for_keys and is_overheard(parts.public_url):
            log.warning("ui.overheard", public_url=parts.public_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        answer: ASGIApp | None = file_at(path)
        if answer is None and path.startswith(Wire.BASE):
            answer = self._wire
        if answer is None:
            try:
                answer = await self._for_session(scope, receive)
            except ClientGone:
                return
        await answer(scope, receive, send)

    # --- who it is

    async def _for_session(self, scope: Scope, receive: Receive) -> ASGIApp:
        cookie = self._cookies.value(scope["headers"])
        session = None if cookie is None else self._sessions.read(cookie)
        if session is None and comes_from_elsewhere(scope):
            # The browser sends its cookie when the page asks for itself.
            return Reply(b" ", media_type=_HTML, headers=(*UNCACHED, _REFRESH))
        fresh = session is None
        session = session or self._sessions.begin()
        visit = Visit(self._parts, self._sessions, self._streams, session, None, arrival_of(scope).peer, scope, {}, {})
        try:
            identity = await self._parts.auth.holder(session.key, session.begun)
            if identity is not None and identity.admin:
                visit = replace(visit, identity=identity)
            return await self._response(visit, await self._visited(visit, receive), fresh=fresh)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - the visitor gets a page for any error, and none of its text
            page = _error_page(self._pipeline.refusal(error, line_of(scope)))
        return await self._response(visit, page, fresh=fresh)

    async def _visited(self, visit: Visit, receive: Receive) -> Outcome:
        """Raises: A2AError."""
        found = find(visit.scope["raw_path"].decode("ascii", "replace"))
        if found is None:
            raise NoSuchAddress("there is no such page")
        address, path = found
        visit = replace(visit, path=path, query=dict(query(visit.scope["query_string"])))
        if visit.identity is None and not address.open:
            return self._to_login(visit, address)
        if visit.identity is not None:
            line_of(visit.scope).principal = visit.identity.caller.principal
        if visit.scope["method"] in READS:
            return await self._made_by(address.get, visit)
        if visit.scope["method"] != "POST" or address.post is None:
            raise MethodNotAllowed("this page does not do that")
        with visit.doing(address.action) as line:
            made = await self._made_by(address.post, await self._filled_in(replace(visit, line=line), receive))
            if isinstance(made, Page) and made.refusal is not None:
                line.refuse(made.refusal)
            return made

    async def _made_by(self, handler: Handler, visit: Visit) -> Outcome:
        """Raises: A2AError."""
        if self._making >= _AT_ONCE:
            raise Busy("Too many pages are made at once; load it again.", retry_after=1)
        self._making += 1
        try:
            return await handler(visit)
        finally:
            self._making -= 1

    def _to_login(self, visit: Visit, address: Address) -> Outcome:
        if address.quiet:
            return Reply(b"", 401, headers=UNCACHED)
        back = visit.address if visit.scope["method"] == "GET" else visit.scope["path"]
        return Away(f"{LOGIN}?to={quote(back, safe='/')}")

    async def _filled_in(self, visit: Visit, receive: Receive) -> Visit:
        """Raises: A2AError for a form that is not of this session or not of this gateway."""
        scope = visit.scope
        why = stranger(scope["headers"], self._parts.public_url)
        if why is not None:
            raise PermissionDenied(f"This form is not taken: {why}.")
        kinds = [
            value.partition(b";")[0].strip().lower() for name, value in scope["headers"] if name == b"content-type"
        ]
        if kinds != [_FORM]:
            raise UnsupportedMediaType("this page takes forms alone")
        body = await self._pipeline.read_body(scope, receive)
        try:
            fields = await asyncio.to_thread(
                parse_qsl, body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS
            )
        except ValueError:
            raise InvalidRequest("the form cannot be read") from None
        form = dict(fields)
        if not self._sessions.has_token(visit.session, form.get("token", "")):
            raise PermissionDenied("This form is too old, or of another session: load the page again.")
        return replace(visit, form=form)

    # --- what comes back

    async def _response(self, visit: Visit, outcome: Outcome, *, fresh: bool) -> ASGIApp:
        if isinstance(outcome, Page):
            headers = [*UNCACHED, *outcome.headers]
            if fresh:
                headers.append(self._cookies.header(self._sessions.cookie(visit.session), LIFETIME))
            body = await asyncio.to_thread(render, outcome.template, self._values(visit, outcome))
            return Reply(body, outcome.status, _HTML, headers)
        if isinstance(outcome, Away):
            headers = [*UNCACHED, (b"location", outcome.to.encode("ascii"))]
            if outcome.session is not None:
                headers.append(self._cookies.header(self._sessions.cookie(outcome.session), LIFETIME))
            elif outcome.forget:
                headers.append(self._cookies.header("", 0))
            return Reply(b"", HTTPStatus.SEE_OTHER, headers=headers)
        return outcome

    def _values(self, visit: Visit, page: Page) -> Mapping[str, object]:
        return {
            "title": page.title,
            "token": self._sessions.token(visit.session),
            "identity": visit.identity,
            "asks_for_keys": self._parts.asks_for_keys,
            "path": visit.scope["path"],
            "area": area(visit.scope["path"]),
            "now": self._parts.clock.now(),
            **page.values,
        }


def _error_page(error: A2AError) -> Page:
    trouble = error.metadata.get("storage")
    values = {"message": error.message, "trouble": trouble, "retry_after": error.retry_after}
    return Page("error.html", HTTPStatus(error.http).phrase, values, error.http, error_headers(error))
