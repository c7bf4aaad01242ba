"""What a page is asked with, and what it answers. Law: values only."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager

import msgspec
from msgspec.structs import replace
from starlette.types import ASGIApp, Scope

from gateway.a2a.errors import A2AError
from gateway.http.audited import AuditLine, actor_of, audited
from gateway.http.auth import Identity
from gateway.http.reply import Headers
from gateway.ledger.threads import Caller
from gateway.ports.observer import Actor, Target
from gateway.ui.parts import Parts
from gateway.ui.sessions import Session, Sessions
from gateway.ui.streams import OpenStreams


class Visit(msgspec.Struct, frozen=True):
    """A request to a page. `path` are the variable parts of its address, `form` is what was filled in, and `line` that of the
    audit log for what the form does. `identity` is None for somebody who has not shown a key where one is asked for."""

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
    line: AuditLine = msgspec.field(default_factory=AuditLine)

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

    def doing(self, action: str) -> AbstractContextManager[AuditLine]:
        """What is done in the block has a line in the audit log, as `audited` has it; nobody without a key has one."""
        identity = self.identity
        if identity is None:
            return audited(self.parts.observer, "", Actor())
        return audited(self.parts.observer, action, actor_of(identity, self.peer))

    def audited(self, action: str, target: Target, outcome: str = "done") -> None:
        with self.doing(action) as line:
            line.target, line.outcome = target, outcome

    def looked_at(self, owner: Caller, target: Target) -> None:
        """An admin sees what belongs to somebody else."""
        if owner != self.caller:
            self.audited("context.seen", replace(target, principal=owner.principal))


class Page(msgspec.Struct, frozen=True):
    """A template and what it shows. `title` is plain text. `refusal`: why what a form asked for was not done."""

    template: str
    title: str
    values: Mapping[str, object] = {}
    status: int = 200
    headers: Headers = ()
    refusal: A2AError | None = None


class Away(msgspec.Struct, frozen=True):
    """The browser goes on to another page of these. `session` is a new one, `forget` ends the one there is."""

    to: str
    session: Session | None = None
    forget: bool = False


Outcome = Page | Away | ASGIApp
Handler = Callable[[Visit], Awaitable[Outcome]]
