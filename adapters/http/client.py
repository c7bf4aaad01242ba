"""The HTTP client of the families, one for each adapter: event streams in; every fault, silence and cut an AdapterError.

Law: no proxy, cookie, redirect or retry of its own; the headers of a family go to the configured host only.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Self

import aiohttp
import msgspec

from adapters.http.connection import Connection, Connector, StaleConnection
from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from adapters.http.sse import EventReader, StreamTooLarge
from gateway.a2a.model import Json
from gateway.foundation.route import DIRECT, Route
from gateway.foundation.tls import ADDRESS_OF_TLS, tls_problem
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.foundation.watchdog import Watchdog
from gateway.ports.adapter import AdapterError, ErrorClass

_ERROR_BODY_LIMIT = 64 * 1024
_DOCUMENT_LIMIT = 4 * 1024 * 1024
_DRAIN_SECONDS = 0.2
_EVENTS = "text/event-stream"
_JSON = "application/json"
_PROXY_CREDENTIALS = 407
"""The status of a proxy that asks for credentials; no other server has it."""
# Above this size aiohttp warns about a body of bytes; it writes a file in pieces.
_WHOLE_BODY_LIMIT = 1024 * 1024


class EventStream:
    """The answer to one request, which `async with` sends and ends. Iterating gives, for each network read that completes any
    event, the `data` of these events.

    Set `answered` once the answer is complete: then the rest is read, so that the connection can be used again.
    """

    def __init__(
        self, request: Callable[[], Awaitable[aiohttp.ClientResponse]], failures: Failures, between_bytes: float
    ) -> None:
        """`request` gives the response, an event stream. `between_bytes` is the longest wait for the next byte, in seconds."""
        self.answered = False
        self._request = request
        self._failures = failures
        self._between_bytes = between_bytes
        self._reader = EventReader()
        self._ended = False

    async def __aenter__(self) -> Self:
        self._response = await self._request()
        self._content = content = self._response.content
        # The watchdog refers to the body and not to this stream, because a cycle of objects would wait for the garbage
        # collector.
        stalled = aiohttp.SocketTimeoutError("nothing was heard for too long")
        self._silence = Watchdog(self._between_bytes, partial(content.set_exception, stalled))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._silence.close()
        try:
            if self.answered and not self._content.at_eof():
                await _drain(self._content)
        finally:
            self._response.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[bytes]:
        while not self._ended:
            if events := await self._read():
                return events
        raise StopAsyncIteration

    async def _read(self) -> list[bytes]:
        self._silence.begin()
        try:
            chunk = await self._content.readany()
            if chunk:
                return self._reader.feed(chunk)
        except StreamTooLarge as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "the answer is too large") from error
        except TimeoutError as error:
            raise self._failures.error(ErrorClass.TIMED_OUT, f"the stream stalled: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failures.error(ErrorClass.INTERRUPTED, f"the stream was cut: {error}") from error
        finally:
            self._silence.end()
        self._ended = True
        last = self._reader.finish()
        return [last] if last else []


class HttpClient:
    """Connections to one backend, opened with the first request, in the event loop of that request."""

    def __init__(
        self,
        timeouts: Timeouts,
        failures: Failures,
        headers: Mapping[str, str] | None = None,
        route: Route = DIRECT,
    ) -> None:
        """`headers` go with every request: the family's credentials, its version. Those of `route` go besides, and
        in their place where they have the same name."""
        self._ca, self._proxy = route.ca, route.proxy
        self._failures = failures
        self._between_bytes = timeouts.between_bytes
        self._timeout = aiohttp.ClientTimeout(connect=timeouts.connect, sock_read=timeouts.first_byte)
        own = {
            "Content-Type": _JSON,
            "Accept": _EVENTS,
            # An uncompressed answer cannot be a bomb, and compression does not shorten short events.
            "Accept-Encoding": "identity",
            "User-Agent": "a2a-gateway",
            **(headers or {}),
        }
        given = dict(route.headers)
        replaced = {name.lower() for name in given}
        self._headers = {name: value for name, value in own.items() if name.lower() not in replaced} | given
        self._session: aiohttp.ClientSession | None = None
        self._answered = False
        """Whether any request has had an answer."""

    def stream(self, url: str, body: bytes | None = None, *, handle: str | None = None) -> EventStream:
        """The event stream that answers a POST of `body`, or a GET. `handle` is the handle that the request continues.

        The stream raises: AdapterError, when it is entered and when it is read.
        """
        return EventStream(partial(self._open, url, body, handle), self._failures, self._between_bytes)

    async def request_json(self, method: str, url: str, body: Json = None, *, handle: str | None = None) -> Json:
        """The JSON of the answer, or None for an answer with status 404. `handle` is the handle that the request is
        about. Raises: AdapterError."""
        content = None if body is None else msgspec.json.encode(body)
        response = await self._send(method, url, content, {"Accept": _JSON})
        try:
            content = await _beginning(response.content, _DOCUMENT_LIMIT)
            if response.status == 404:
                return None
            if 200 <= response.status < 300:
                return msgspec.json.decode(content) if content else {}
            raise self._failures.from_response(response.status, response.headers, content, handle=handle)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an answer that is no JSON: {error}") from error
        finally:
            response.close()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _send(self, method: str, url: str, body: bytes | None, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """`headers` replace those of every request."""
        if self._proxy is not None:
            headers = {**headers, **self._proxy.headers_of(url)}
        try:
            response = await self._open_session().request(
                method,
                url,
                data=body if body is None or len(body) < _WHOLE_BODY_LIMIT else io.BytesIO(body),
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
                **(self._proxy.arguments(url) if self._proxy is not None else {}),
            )
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise self._failed(ErrorClass.UNREACHABLE, error) from error
        except TimeoutError as error:
            raise self._failed(ErrorClass.TIMED_OUT, error) from error
        except StaleConnection as error:
            # The other kept connections may have ended too: the next request goes on a new one.
            connector = self._open_session().connector
            if isinstance(connector, Connector):
                connector.close_kept()
            raise self._failed(ErrorClass.INTERRUPTED, error, stale_connection=True) from error
        except aiohttp.ServerDisconnectedError as error:
            # Most servers of TLS say nothing to a request in plain text.
            hint = f"; {ADDRESS_OF_TLS}" if url.startswith("http:") and not self._answered else ""
            raise self._failures.error(ErrorClass.INTERRUPTED, f"it disconnected without an answer{hint}") from error
        except (aiohttp.ClientConnectionError, OSError) as error:
            raise self._failed(ErrorClass.INTERRUPTED, error) from error
        except aiohttp.ClientHttpProxyError as error:
            failed = self._refused_by_proxy(error.status)
            drop_tracebacks(error)
        except aiohttp.ClientError as error:
            failed = self._failed(ErrorClass.CONTRACT_BROKEN, error)
            drop_tracebacks(error)
        else:
            self._answered = True
            if response.status != _PROXY_CREDENTIALS or self._proxy is None:
                return response
            response.close()
            failed = self._refused_by_proxy(response.status)
        # The request of such an error holds the credentials, so the error is not chained.
        raise failed

    async def _open(self, url: str, body: bytes | None, handle: str | None) -> aiohttp.ClientResponse:
        """Raises: AdapterError unless an event stream begins."""
        response = await self._send("GET" if body is None else "POST", url, body, {})
        try:
            await self._check(response, handle)
        except BaseException:
            response.close()
            raise
        return response

    async def _check(self, response: aiohttp.ClientResponse, handle: str | None) -> None:
        headers = response.headers
        content_type = headers.get("Content-Type", _EVENTS).partition(";")[0].strip().lower()
        encoding = headers.get("Content-Encoding", "identity")
        if not 200 <= response.status < 300 or content_type != _EVENTS:
            body = b"" if encoding != "identity" else await _beginning(response.content, _ERROR_BODY_LIMIT)
            raise self._failures.from_response(response.status, headers, body, handle=handle)
        if encoding != "identity":
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an answer with Content-Encoding {encoding!r}")
        protocol = response.connection.protocol if response.connection is not None else None
        if isinstance(protocol, Connection):
            protocol.carry(response.content)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # The defaults of aiohttp: 100 connections, cookies kept, five minutes in all.
            self._session = aiohttp.ClientSession(
                connector=Connector(self._ca),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    def _refused_by_proxy(self, status: int) -> AdapterError:
        where = "" if self._proxy is None else f" {self._proxy.url}"
        return self._failures.error(ErrorClass.UNREACHABLE, f"the proxy{where} answers HTTP {status}")

    def _failed(self, kind: ErrorClass, error: Exception, *, stale_connection: bool = False) -> AdapterError:
        text = tls_problem(error, "`ca`") or f"{type(error).__name__}: {error}"
        return self._failures.error(kind, text, stale_connection=stale_connection)


async def _drain(content: aiohttp.StreamReader) -> None:
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await content.readany():
                pass


async def _beginning(content: aiohttp.StreamReader, limit: int) -> bytes:
    """The first `limit` bytes of a body. A body that is cut or stalls must not hide the status of its response."""
    body = b""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        while len(body) < limit and (chunk := await content.readany()):
            body += chunk
    return body[:limit]
