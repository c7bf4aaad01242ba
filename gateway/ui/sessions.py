"""Sessions of the pages. Law: a session is what its cookie says, so it holds in every process and after a restart; it never
outlives the key that began it, nor the next logout with that key, and holds nothing of the key but its digest."""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

import msgspec

LIFETIME = 12 * 3600
"""Seconds."""

_TIME, _NONCE, _MAC = 6, 16, 32
_DIGESTS = (0, 32)
_LONGEST = 200


class Session(msgspec.Struct, frozen=True):
    """`key` is the digest of the API key, empty for somebody who has shown none. `begun` is in milliseconds since 1970."""

    key: bytes
    begun: int
    nonce: bytes


class Sessions:
    """Makes and reads cookies. `now` gives milliseconds since 1970."""

    def __init__(self, secret: bytes, now: Callable[[], int]) -> None:
        self._secret = secret
        self._now = now

    @property
    def installation(self) -> str:
        """A short id of the gateways that share these sessions."""
        return self._mac(b"installation", b"").hex()[:8]

    def begin(self, key: bytes = b"") -> Session:
        return Session(key, self._now(), secrets.token_bytes(_NONCE))

    def cookie(self, session: Session) -> str:
        """The value of the cookie."""
        content = session.begun.to_bytes(_TIME, "big") + session.nonce + session.key
        return urlsafe_b64encode(content + self._mac(b"session", content)).decode().rstrip("=")

    def read(self, cookie: str) -> Session | None:
        """None for a cookie that is not of this gateway, or too old."""
        if len(cookie) > _LONGEST or not cookie.isascii():
            return None
        try:
            whole = urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
        except ValueError:
            return None
        content, mac = whole[:-_MAC], whole[-_MAC:]
        if len(content) - _TIME - _NONCE not in _DIGESTS or not hmac.compare_digest(
            mac, self._mac(b"session", content)
        ):
            return None
        session = Session(
            content[_TIME + _NONCE :], int.from_bytes(content[:_TIME], "big"), content[_TIME : _TIME + _NONCE]
        )
        return session if 0 <= self._now() - session.begun < LIFETIME * 1000 else None

    def token(self, session: Session) -> str:
        """What a form of this session carries, and a page of another site cannot know."""
        return self._mac(b"form", session.nonce).hex()

    def has_token(self, session: Session, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token(session).encode())

    def _mac(self, use: bytes, content: bytes) -> bytes:
        return hmac.digest(self._secret, use + b"\0" + content, hashlib.sha256)
