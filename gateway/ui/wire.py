"""The public wire for the playground: the binding HTTP+JSON as every client has it, for a session instead of a key.

Law: a request is the session's only with the token of its forms, which no page of another site knows.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar

from starlette.types import Receive, Scope, Send

from gateway.a2a.errors import NoSuchAddress, Unauthenticated
from gateway.http.auth import Headers, Identity, KeyHolders
from gateway.http.pipeline import Pipeline
from gateway.http.reply import rest_reply
from gateway.http.rest import Rest
from gateway.http.rest_addresses import resource
from gateway.ui.security import Cookies
from gateway.ui.sessions import Sessions

_TOKEN = b"x-ui-token"
_NOWHERE = rest_reply(NoSuchAddress("nothing stands at this address"))


class SessionAuthentication:
    """Tells the caller by the cookie of a session."""

    def __init__(self, auth: KeyHolders, sessions: Sessions, cookies: Cookies) -> None:
        self._auth = auth
        self._sessions = sessions
        self._cookies = cookies

    async def authenticate(self, headers: Headers, peer: str) -> Identity:
        """Raises: Unauthenticated, LedgerUnavailable."""
        given = tuple(headers)
        cookie = self._cookies.value(given)
        session = None if cookie is None else self._sessions.read(cookie)
        tokens = [value.decode("latin-1") for name, value in given if name == _TOKEN]
        if session is not None and len(tokens) == 1 and self._sessions.has_token(session, tokens[0]):
            identity = await self._auth.holder(session.key, session.begun)
            if identity is not None and identity.admin:
                return identity
        raise Unauthenticated("this needs a session of the pages: load the page again")

    def on_revocation(self, identity: Identity, callback: Callable[[], None]) -> AbstractContextManager[None]:
        return self._auth.on_revocation(identity, callback)


class Wire:
    """/ui/wire/{agent}/message:send and its like."""

    BASE: ClassVar = "/ui/wire/"

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        agent, *below = scope["path"][len(self.BASE) :].split("/")
        found = resource(below)
        if found is None:
            await _NOWHERE(scope, receive, send)
        else:
            await Rest(self._pipeline, found, None).serve(agent, scope, receive, send)
