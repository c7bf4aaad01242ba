"""Credentials to a caller. Law: a failed credential raises, it never yields an anonymous caller; credentials are neither
logged nor kept, except for the beginning of what looks like a key, and for digests of whole keys."""

import asyncio
import hmac
import ipaddress
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from gateway.a2a.errors import A2AError, TooManyRequests, Unauthenticated
from gateway.foundation.clock import Clock
from gateway.foundation.rate_limit import TokenBuckets
from gateway.ledger.api_keys import ApiKey, digest_of, has_form, shown
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ledger.threads import Caller
from gateway.ports.observer import SILENT, Actor, AuditEntry, Observer

log = structlog.get_logger("gateway.http.auth")

_TRUSTED_FOR = 1.0
"""Seconds for which a key is trusted after it was read: a revoked one may still be accepted for so long."""

_RECHECK = _TRUSTED_FOR / 2
"""Seconds between two checks of the keys that have open streams."""

_KEPT = 4096
_FAILURES = 20
_FAILURES_PER_SECOND = 1 / 3
_NETWORK = 64
"""Bits of an IPv6 address that identify one peer: the owner of one address has all that share these bits."""

_Known = tuple[ApiKey, "Identity", float]
"""A key, its holder, and when it was read."""

Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case."""


class Identity(msgspec.Struct, frozen=True):
    """The authenticated caller. `admin` says that the caller may use the admin API. `key` is the digest of the caller's
    key, `shown` the part of it that may be shown. `session` is when the session began that stands for the key, in milliseconds
    since 1970; None for a caller with the key itself."""

    caller: Caller
    admin: bool = False
    key: bytes | None = None
    shown: str = ""
    session: int | None = None


_ANYONE = Identity(Caller("anonymous"), admin=True)


class Authenticator(Protocol):
    """Tells who calls."""

    async def authenticate(self, headers: Headers, peer: str) -> Identity:
        """`peer` is the address of the other end of the connection.

        Raises: Unauthenticated, TooManyRequests, LedgerUnavailable.
        """

    def on_revocation(self, identity: Identity, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """While the block runs, `callback` is called when the credential is not valid any more."""


class KeyHolders(Authenticator, Protocol):
    """Also tells who has shown a key before."""

    async def holder(self, digest: bytes, session: int) -> Identity | None:
        """Whoever holds the key with this digest, by a session that began then; None where the key is not in force, or its
        sessions were ended since. Raises: LedgerUnavailable."""

    def forget(self, digest: bytes) -> None:
        """What is known of this key has changed."""


class NoAuthentication:
    """Mode `none`: every client is the same anonymous caller."""

    async def authenticate(self, headers: Headers, peer: str) -> Identity:
        return _ANYONE

    async def holder(self, digest: bytes, session: int) -> Identity | None:
        return _ANYONE

    def forget(self, digest: bytes) -> None:
        """Nothing is known of any."""

    def on_revocation(self, identity: Identity, callback: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()


class KeySource(Protocol):
    async def api_key(self, digest: bytes) -> ApiKey | None: ...


class KeyAuthentication:
    """Mode `any_of` with API keys: `Authorization: Bearer KEY` or `X-API-Key: KEY`.

    An invalid key is looked up like any other, so that a valid one always passes, whatever else its address sent.
    """

    def __init__(self, keys: KeySource, clock: Clock, observer: Observer = SILENT) -> None:
        self._keys = keys
        self._observer = observer
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._callbacks: dict[bytes, set[tuple[Callable[[], None], int | None]]] = {}
        self._failures = TokenBuckets(_FAILURES, _FAILURES_PER_SECOND, clock.monotonic)

    async def authenticate(self, headers: Headers, peer: str) -> Identity:
        presented = _credentials(headers)
        if not presented:
            raise Unauthenticated("this needs an API key, as Authorization: Bearer KEY or as X-API-Key: KEY")
        if len(presented) > 1:
            raise self._failure(peer, "", "several")
        [text] = presented
        if not has_form(text):
            raise self._failure(peer, "", "malformed")
        found, fault = await self._in_force(digest_of(text))
        if found is None:
            raise self._failure(peer, shown(text), fault)
        return found[1]

    async def holder(self, digest: bytes, session: int) -> Identity | None:
        found = (await self._in_force(digest))[0] if digest else None
        return replace(found[1], session=session) if found is not None and found[0].keeps(session) else None

    def forget(self, digest: bytes) -> None:
        self._known.pop(digest, None)

    async def _in_force(self, digest: bytes) -> tuple[_Known | None, str]:
        """This key and its holder, or why there is none."""
        known = self._known.get(digest)
        if known is None or self._clock.monotonic() - known[2] >= _TRUSTED_FOR:
            known = await self._look_up(digest)
        fault = "unknown" if known is None else known[0].fault(self._clock.now())
        if known is None or fault is not None:
            self._known.pop(digest, None)
            return None, fault or "unknown"
        return known, ""

    @contextmanager
    def on_revocation(self, identity: Identity, callback: Callable[[], None]) -> Iterator[None]:
        if identity.key is None:
            yield
            return
        callbacks = self._callbacks.setdefault(identity.key, set())
        entry = (callback, identity.session)
        callbacks.add(entry)
        try:
            yield
        finally:
            callbacks.discard(entry)
            if not callbacks:
                self._callbacks.pop(identity.key, None)

    async def run(self) -> None:
        """Never returns: calls the callbacks of every key that was revoked or has expired, and of sessions that were ended."""
        while True:
            await asyncio.sleep(_RECHECK)
            for digest in tuple(self._callbacks):
                with suppress(LedgerUnavailable, CorruptRecord):
                    key = await self._keys.api_key(digest)
                    over = key is None or key.fault(self._clock.now()) is not None
                    for callback, session in tuple(self._callbacks.get(digest, ())):
                        if over or (key is not None and session is not None and not key.keeps(session)):
                            callback()

    async def _look_up(self, digest: bytes) -> _Known | None:
        # The time before the read: a key that is revoked during the read is not trusted for longer.
        now = self._clock.monotonic()
        key = await self._keys.api_key(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            return None
        found = (key, Identity(Caller(key.principal, key.tenant), key.admin, digest, key.prefix), now)
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[digest] = found
        return found

    def _failure(self, peer: str, prefix: str, reason: str) -> A2AError:
        self._observer.key_refused(reason)
        wait = self._failures.take(_network(peer))
        if wait:
            return TooManyRequests("Too many keys from this address were not valid.", retry_after=math.ceil(wait))
        if self._observer.audits:
            self._observer.audited(AuditEntry("auth.refused", Actor(key=prefix, peer=peer), outcome=reason))
        log.warning("auth.failed", peer=peer, prefix=prefix, reason=reason)
        return Unauthenticated("the API key is not valid", presented=True)


def _credentials(headers: Headers) -> set[str]:
    """The distinct keys of all headers that may hold one."""
    found = set()
    for name, value in headers:
        if name == b"x-api-key":
            found.add(value.strip().decode("latin-1"))
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            # Another scheme is not a key, but it is a credential.
            found.add(key.strip().decode("latin-1") if scheme.lower() == b"bearer" else "")
    return found


def _network(peer: str) -> str:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> (128 - _NETWORK) << (128 - _NETWORK), _NETWORK)))
