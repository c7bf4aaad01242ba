"""Who comes in, and who leaves. Law: a key is looked at by the authenticator of all callers, with its brakes, and is kept
nowhere."""

import re

from msgspec.structs import replace

from gateway.a2a.errors import A2AError, TooManyRequests, Unauthenticated
from gateway.ledger.api_keys import EndSessions
from gateway.ports.observer import Target
from gateway.ui.visit import Away, Outcome, Page, Visit

_HOME = "/ui/"
_PAGE = re.compile(r"/ui/[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*")


async def ask(visit: Visit) -> Outcome:
    to = _destination(visit.query.get("to", ""))
    return Away(to) if visit.identity is not None else _form(to)


async def enter(visit: Visit) -> Outcome:
    to = _destination(visit.form.get("to", ""))
    key = visit.form.get("key", "").strip()
    try:
        identity = await visit.parts.auth.authenticate([(b"authorization", b"Bearer " + key.encode())], visit.peer)
    except (Unauthenticated, TooManyRequests) as error:
        return _form(to, error)
    if not identity.admin:
        replace(visit, identity=identity).audited("session.begun", Target(), "permission_denied")
        return _form(to, Unauthenticated("this key is in force, but the pages need an admin key"))
    session = visit.sessions.begin(identity.key or b"")
    from_now_on = replace(visit, session=session, identity=identity)
    from_now_on.audited("session.begun", Target())
    return Away(to, session)


async def leave(visit: Visit) -> Outcome:
    """Ends all sessions of the key: a copy of a cookie may be anywhere."""
    key = None if visit.identity is None else visit.identity.key
    if key is not None:
        await visit.parts.ledger.commit(EndSessions(key, visit.parts.clock.now()))
        visit.parts.auth.forget(key)
    visit.audited("session.ended", Target())
    return Away("/ui/login", forget=True)


def _form(to: str, error: A2AError | None = None) -> Page:
    values = {"to": to, "problem": None if error is None else error.message}
    return Page("login.html", "Log in", values, 200 if error is None else error.http)


def _destination(given: str) -> str:
    """A page of these, whatever was asked for."""
    return given if _PAGE.fullmatch(given) and not given.startswith("/ui/login") else _HOME
