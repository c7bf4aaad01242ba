"""Posts a notification to the receiver's address. Law: a connection goes only to an address that was just checked; no redirect,
cookie or proxy; every failure is an outcome, never an exception."""

import io
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp
from yarl import URL

from gateway.foundation.addresses import TargetRefused, TargetRules, check_target
from gateway.foundation.aiohttp_resolver import CheckedResolver
from gateway.foundation.clock import Clock
from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE
from gateway.foundation.resolver import Resolver
from gateway.foundation.retry import parse_retry_after
from gateway.foundation.route import DIRECT, Route
from gateway.foundation.tls import client_context, tls_problem
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.push.webhook import Outcome

_CONNECT_TIMEOUT = 5.0
_MAX_RESPONSE = 64 * 1024
"""Bytes of a response that are read."""

_WHOLE_BODY = 1024 * 1024
"""Above this size aiohttp warns about a body of bytes; it writes a file in pieces."""


class Sender:
    """Sends posts, and keeps connections for later posts. The object is made in a running event loop. `timeout` is the
    number of seconds for one whole post."""

    def __init__(
        self, rules: TargetRules, resolver: Resolver, timeout: float, clock: Clock, route: Route = DIRECT
    ) -> None:
        self._rules = rules
        via = route.proxy
        self._resolver = resolver
        self._proxy = via
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=min(_CONNECT_TIMEOUT, timeout))
        self._clock = clock
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                use_dns_cache=False,
                # A proxy connects to the receiver, and is the operator's own.
                resolver=CheckedResolver(resolver) if via is None else None,
                ssl=True if route.ca is None else client_context(route.ca),
                keepalive_timeout=CLIENT_KEEP_ALIVE,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers={
                "User-Agent": "a2a-gateway",
                "Accept-Encoding": "identity",
                "Accept": "*/*",
                **route.headers,
            },
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        try:
            # The rules may have changed since the configuration was made, and a literal address is not looked up.
            check_target(url, self._rules)
            proxy: dict[str, Any] = {}
            if self._proxy is not None:
                await self._check_names(URL(url))
                proxy, headers = self._proxy.arguments(url), {**headers, **self._proxy.headers_of(url)}
            async with self._session.post(
                url,
                data=body if len(body) < _WHOLE_BODY else io.BytesIO(body),
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
                **proxy,
            ) as response:
                await _read(response)
                return Outcome(response.status, "", parse_retry_after(response.headers, self._clock.now()))
        except (TargetRefused, aiohttp.ClientError, OSError, ValueError) as error:
            drop_tracebacks(error)
            return Outcome(None, _reason(error))

    async def _check_names(self, url: URL) -> None:
        """A proxy looks the host up by itself. What this machine knows of the host is checked all the same."""
        with suppress(OSError):
            await self._resolver.addresses(url.host or "", url.port or 0)

    async def aclose(self) -> None:
        await self._session.close()


def _reason(error: Exception) -> str:
    problem = tls_problem(error, "`ca` of `push`")
    if problem is not None:
        return problem
    match error:
        case TargetRefused():
            return f"the address {error}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answers HTTP {error.status}"
        case TimeoutError():
            return "timed out"
        case aiohttp.ClientConnectorDNSError():
            return "the host is not known"
        case aiohttp.ClientConnectorError():
            return "could not connect"
        case _:
            return "the connection broke, or what came was no HTTP"


async def _read(response: aiohttp.ClientResponse) -> None:
    """Reads a short body to its end, so that the connection can be used again. The body decides nothing."""
    read = 0
    try:
        while chunk := await response.content.readany():
            read += len(chunk)
            if read > _MAX_RESPONSE:
                response.close()
                return
    except (aiohttp.ClientError, OSError, TimeoutError):
        response.close()
