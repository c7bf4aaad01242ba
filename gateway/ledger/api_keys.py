"""API keys: how one is made, and what the ledger keeps of it. Law: a key is shown once and stored nowhere; what is stored
finds it and cannot be turned back into it."""

import hashlib
import re
import secrets

import msgspec

MARK = "a2agw_"
"""With this every key begins, so that people and scanners for leaked secrets recognise one."""

_FORM = re.compile(rf"{MARK}[A-Za-z0-9_-]{{43}}")
_SHOWN = len(MARK) + 6


class ApiKey(msgspec.Struct, frozen=True):
    """`prefix` is what is shown of the key, `digest` its SHA-256; `admin`: it also opens the admin API.

    Times are milliseconds since 1970; None: it does not expire, it is not revoked.
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

    def fault(self, now: int) -> str | None:
        """Why it does not count any more; None while it does."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return None


class IssueKey(msgspec.Struct, frozen=True):
    """Stores a new key. Hits a row when a key of this name is in force."""

    key: ApiKey


class RevokeKey(msgspec.Struct, frozen=True):
    """Ends the key of this name for good; the name may be given to another. Hits no row when there is none in force."""

    name: str
    now: int


def new_key() -> str:
    """A key that nobody can guess: 256 random bits."""
    return MARK + secrets.token_urlsafe(32)


def has_form(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def digest_of(key: str) -> bytes:
    """Of the whole key: no two keys share one, whatever they begin with."""
    return hashlib.sha256(key.encode()).digest()


def shown(text: str) -> str:
    """What may be logged of something that was presented as a key: nothing of what is none, which may be a password."""
    return text[:_SHOWN] if has_form(text) else ""
