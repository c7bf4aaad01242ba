"""A token that expires: kept until shortly before that, then fetched anew. Law: one request for a token at a time, whose
outcome is that of all who waited for it; a token that still holds is used where no newer one can be had.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from adapters.http.failures import Failures
from adapters.http.signing import Credential
from gateway.foundation.clock import Clock
from gateway.ports.adapter import AdapterError, ErrorClass

_MARGIN = 300.0
"""Seconds before its end at which a token is fetched anew; of a short one, a tenth of its life."""
_PAUSE = 30.0
"""Seconds until the next attempt behind one that has failed, as long as the token holds."""


class Token(msgspec.Struct, frozen=True):
    """`lifetime` is in seconds from now; None where nobody said it, and then a 401 of the service says it."""

    value: str
    lifetime: float | None


Fetch = Callable[[], Awaitable[Token]]
"""Asks for a token. Raises: AdapterError."""


class _Failure(msgspec.Struct, frozen=True):
    """What an error says, without its traceback."""

    kind: ErrorClass
    detail: str
    retry_after: float | None

    def error(self) -> AdapterError:
        return AdapterError(self.kind, self.detail, retry_after=self.retry_after)


class BearerToken(Credential):
    def __init__(self, fetch: Fetch, failures: Failures, clock: Clock | None = None) -> None:
        """`failures` masks the tokens in the texts of services."""
        self._fetch = fetch
        self._failures = failures
        self._now = (clock or Clock()).monotonic
        self._token = ""
        self._due = self._end = 0.0
        """When the token is fetched anew, and when it ends."""
        self._fetching = asyncio.Lock()
        self._attempts = 0
        self._failure: _Failure | None = None
        """The outcome of the last attempt."""

    async def __call__(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        if self._now() >= self._due:
            await self._renew()
        return _header(self._token)

    def renew(self, refused: Mapping[str, str]) -> bool:
        # Another request may have brought a newer token meanwhile.
        if refused == _header(self._token):
            self._due = self._end = 0.0
        return True

    async def _renew(self) -> None:
        seen = self._attempts
        async with self._fetching:
            if self._now() < self._due:
                return
            if self._failure is not None and self._attempts > seen:
                raise self._failure.error()
            try:
                token = await self._fetch()
            except AdapterError as error:
                self._attempts += 1
                self._failure = _failure(error)
                left = self._end - self._now()
                if left <= 0:
                    raise self._failure.error() from error
                self._due = self._now() + min(_PAUSE, left)
            else:
                self._attempts += 1
                self._failure = None
                self._take(token)

    def _take(self, token: Token) -> None:
        self._failures.hide(token.value)
        self._token = token.value
        if token.lifetime is None:
            self._due = self._end = float("inf")
        else:
            self._end = self._now() + token.lifetime
            self._due = self._end - min(_MARGIN, token.lifetime / 10)


def _header(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _failure(error: AdapterError) -> _Failure:
    """What a failed request for a token means for the request that needs it, which was not sent."""
    transient = ErrorClass.RATE_LIMITED if error.kind is ErrorClass.RATE_LIMITED else ErrorClass.UNREACHABLE
    kind = transient if error.kind.meaning.transient else ErrorClass.UNAUTHORISED
    return _Failure(kind, f"no token: {error.detail}", error.retry_after)
