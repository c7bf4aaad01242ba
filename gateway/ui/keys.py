"""Who may call? Law: a key is shown once, when it is made, and is in no address and no log."""

import re

from gateway.a2a.errors import A2AError, NotFound, invalid
from gateway.config.settings import duration
from gateway.ledger.api_keys import ApiKey, IssueKey, RevokeKey, digest_of, new_key, shown
from gateway.ledger.errors import Conflict
from gateway.ports.observer import Target
from gateway.ui.questions import Question
from gateway.ui.visit import Away, Outcome, Page, Visit

_VALID = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,256}")


async def show(visit: Visit) -> Outcome:
    now = visit.parts.clock.now()
    keys = [key for key in await visit.parts.ledger.api_keys() if key.tenant == visit.caller.tenant]
    states = {key.digest: key.fault(now) or "in force" for key in keys}
    mine = visit.identity.key if visit.identity is not None else None
    values = {
        "keys": sorted(keys, key=lambda key: (states[key.digest] != "in force", -key.created_at)),
        "states": states,
        "mine": mine,
        "asks": visit.parts.asks_for_keys,
    }
    return Page("keys.html", "Keys", values)


# --- a new one


async def ask_new(_: Visit) -> Outcome:
    return _form({}, None)


async def create(visit: Visit) -> Outcome:
    visit.line.target = Target(key=visit.form.get("name", "").strip())
    try:
        secret, key = _made(visit)
        await visit.parts.ledger.commit(IssueKey(key))
    except Conflict:
        return _form(visit.form, invalid("name", "is that of a key in force: revoke it, or choose another"))
    except A2AError as error:
        return _form(visit.form, error)
    visit.line.target = Target(key=key.name, principal=key.principal, tenant=key.tenant, admin=key.admin)
    return Page("key_made.html", "A new key", {"secret": secret, "key": key})


def _made(visit: Visit) -> tuple[str, ApiKey]:
    """Raises: InvalidParams."""
    form, secret, now = visit.form, new_key(), visit.parts.clock.now()
    name = form.get("name", "").strip()
    principal = form.get("principal", "").strip() or name
    for field, text in (("name", name), ("principal", principal)):
        if not _VALID.fullmatch(text):
            raise invalid(field, "must be 1 to 256 characters without control characters")
    expires = form.get("expires", "").strip()
    try:
        lasts = int(duration(expires) * 1000) if expires else None
    except ValueError as error:
        raise invalid("expires", str(error)) from None
    if lasts == 0:
        raise invalid("expires", "must be longer than nothing")
    key = ApiKey(
        digest=digest_of(secret),
        name=name,
        prefix=shown(secret),
        principal=principal,
        tenant=visit.caller.tenant,
        admin=form.get("admin") == "1",
        created_at=now,
        expires_at=None if lasts is None else now + lasts,
    )
    return secret, key


def _form(form: object, error: A2AError | None) -> Page:
    problem = None if error is None else error.message
    values, status = {"form": form, "problem": problem}, 200 if error is None else error.http
    return Page("key_new.html", "Make a key", values, status, refusal=error)


# --- revocation


async def ask_revoke(visit: Visit) -> Outcome:
    key = await _in_force(visit)
    yourself = visit.identity is not None and visit.identity.key == key.digest
    facts = [("begins with", key.prefix), ("principal", key.principal), ("admin", "yes" if key.admin else "no")]
    will = ["Requests with it are refused within a second, and streams that are open with it end."]
    will.append("Turns that it began go on, and another key of its principal sees them.")
    if yourself:
        will.append("It is the key of this session, which ends with it.")
    return Question(f"Revoke the key {key.name}?", will, "Revoke", [("/ui/keys", "Keys")], facts).page()


async def revoke(visit: Visit) -> Outcome:
    visit.line.target = Target(key=visit.query.get("name", ""))
    key = await _in_force(visit)
    try:
        await visit.parts.ledger.commit(RevokeKey(key.name, visit.parts.clock.now()))
    except Conflict:
        raise NotFound("This key is not in force any more.") from None
    return Away("/ui/keys")


async def _in_force(visit: Visit) -> ApiKey:
    """The key that the address names; a name is that of one key in force. Raises: NotFound."""
    now = visit.parts.clock.now()
    for key in await visit.parts.ledger.api_keys():
        if key.name == visit.query.get("name") and key.tenant == visit.caller.tenant and key.fault(now) is None:
            return key
    raise NotFound("There is no such key in force.")
