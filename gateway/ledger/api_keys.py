"""API keys: how one is made, and the record of it. Law: a key is shown once and never stored; the stored digest finds the
record and cannot be turned back into the key."""

import hashlib
import re
import secrets

import msgspec

MARK = "a2agw_"
"""Prefix of every key: people and scanners for leaked secrets recognise it."""

_FORM = re.compile(rf"{MARK}[A-Za-z0-9_-]{{43}}")
_SHOWN = len(MARK) + 6


class ApiKey(msgspec.Struct, frozen=True):
    """A key of the gateway. `prefix` is the part of the key that is shown, `digest` the SHA-256 of the key. `admin`
    says that the key also opens the admin API.

    Times are milliseconds since 1970. A key whose `expires_at` is None does not expire; a key whose `revoked_at` is
    None is not revoked. Sessions of pages that began until `sessions_ended_at` are over.
    """

    digest: bytes
    name: str
    prefix: str
    principal: str
    tenant: str
    admin: bool
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    sessions_ended_at: int | None = None

    def fault(self, now: int) -> str | None:
        """Why the key is refused: `revoked` or `expired`; None while it is in force."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return None

    def keeps(self, session: int) -> bool:
        """Whether a session that began then goes on, as long as the key is in force."""
        return self.sessions_ended_at is None or session > self.sessions_ended_at


class IssueKey(msgspec.Struct, frozen=True):
    """Stores a new key. Conflict when a key of this name is in force."""

    key: ApiKey


class RevokeKey(msgspec.Struct, frozen=True):
    """Revokes the key of this name for good; the name may be used again. Conflict when no key of this name is in force."""

    name: str
    now: int


class EndSessions(msgspec.Struct, frozen=True):
    """Ends the sessions of pages that the key with this digest has begun until `now`. Conflict when there is no such key."""

    digest: bytes
    now: int


def new_key() -> str:
    """A key that nobody can guess: 256 random bits."""
    return MARK + secrets.token_urlsafe(32)


def has_form(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def digest_of(key: str) -> bytes:
    """SHA-256 of the whole key."""
    return hashlib.sha256(key.encode()).digest()


def shown(text: str) -> str:
    """The part of a presented key that may be logged: nothing of a text that is no key, which may be a password."""
    return text[:_SHOWN] if has_form(text) else ""
