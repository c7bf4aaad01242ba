"""What a page is asked with, and what it answers. Law: values only."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.types import ASGIApp, Scope

from gateway.http.auth import Identity
from gateway.http.reply import Headers
from gateway.ledger.threads import Caller
from gateway.ports.observer import Actor, AuditEntry, Target
from gateway.ui.parts import Parts
from gateway.ui.sessions import Session, Sessions
from gateway.ui.streams import OpenStreams


class Visit(msgspec.Struct, frozen=True):
    """A request to a page. `path` are the variable parts of its address, `form` is what was filled in. `identity` is None for
    somebody who has not shown a key where one is asked for."""

    parts: Parts
    sessions: Sessions
    streams: OpenStreams
    session: Session
    identity: Identity | None
    peer: str
    scope: Scope
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str] = {}

    @property
    def caller(self) -> Caller:
        """Only of pages that are for admins."""
        assert self.identity is not None  # noqa: S101 - `Site` lets nobody else in
        return self.identity.caller

    @property
    def address(self) -> str:
        """The path and the query of this page."""
        query = self.scope["query_string"].decode("ascii", "replace")
        path: str = self.scope["raw_path"].decode("ascii", "replace")
        return f"{path}?{query}" if query else path

    def audited(self, action: str, target: Target, outcome: str = "done") -> None:
        observer, identity = self.parts.observer, self.identity
        if observer.audits and identity is not None:
            actor = Actor(identity.caller.principal, identity.caller.tenant, identity.shown, self.peer)
            observer.audited(AuditEntry(action, actor, target, outcome))

    def looked_at(self, owner: Caller, target: Target) -> None:
        """An admin sees what belongs to somebody else."""
        if owner != self.caller:
            self.audited("context.seen", target)


class Page(msgspec.Struct, frozen=True):
    """A template and what it shows. `title` is plain text."""

    template: str
    title: str
    values: Mapping[str, object] = {}
    status: int = 200
    headers: Headers = ()


class Away(msgspec.Struct, frozen=True):
    """The browser goes on to another page of these. `session` is a new one, `forget` ends the one there is."""

    to: str
    session: Session | None = None
    forget: bool = False


Outcome = Page | Away | ASGIApp
Handler = Callable[[Visit], Awaitable[Outcome]]
