"""The HTTP client of the families, one for each adapter: requests and streams; every fault, silence and cut an AdapterError.

Law: no proxy, cookie, redirect or retry of its own, but one more attempt with renewed credentials behind a 401; the headers of
a family go to the configured host only.
"""

import io
from collections.abc import Collection, Container, Mapping
from functools import partial
from typing import TypeAlias

import aiohttp
import msgspec
from multidict import CIMultiDict

from adapters.http.address import readable
from adapters.http.bodies import ERROR_LIMIT, BodyTooLarge, beginning, whole
from adapters.http.chunks import ChunkReader
from adapters.http.connection import Connection, Connector, StaleConnection
from adapters.http.document import read_document
from adapters.http.failures import Failures
from adapters.http.faults import Faults
from adapters.http.named_events import NamedEventReader, ServerEvent
from adapters.http.settings import Timeouts
from adapters.http.signing import Credential, Signing
from adapters.http.sse import EVENT_LIMIT, EventReader
from adapters.http.streams import AnswerStream, Piece, Reader, media_type
from adapters.http.websocket import HandshakeRefused, WebSocket, refuse_answers
from adapters.http.whole_answer import DocumentReader
from gateway.a2a.model import Json
from gateway.foundation import trace
from gateway.foundation.route import DIRECT, Route
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.wire import Player, Tap, take_tap

SUCCESS = range(200, 300)

_DOCUMENT_LIMIT = 4 * 1024 * 1024
_ANY = "*/*"
_EVENTS = "text/event-stream"
_JSON = "application/json"
_UNENCODED = "identity"
_UNAUTHORISED = 401
_NOT_FOUND = 404
_NO_HEADERS: Mapping[str, str] = {}
_WITHOUT_REQUEST = (aiohttp.ClientConnectionError, OSError)
"""The request in any other error of aiohttp holds the credentials, so that error is not chained."""
_CLOSING = aiohttp.ClientWSTimeout(ws_close=1.0)
"""How long a server may take for its answer to a close."""
_PING_SHARE = 2 / 3
"""aiohttp waits half as long for the answer to a ping as it has waited before the ping."""
_PROXY_CREDENTIALS = 407
"""The status of a proxy that asks for credentials; no other server has it."""
# Above this size aiohttp warns about a body of bytes; it writes a file in pieces.
_WHOLE_BODY_LIMIT = 1024 * 1024


EventStream: TypeAlias = AnswerStream[bytes]
"""A stream of the `data` of events."""


class Reply(msgspec.Struct, frozen=True):
    """A whole answer. The names of `headers` may be written in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """Connections to one backend, opened with the first request, in the event loop of that request.

    `handle` is the handle that a request continues or is about. `headers` of a request replace those of every request, but not
    those of the operator.
    """

    def __init__(
        self,
        timeouts: Timeouts,
        failures: Failures,
        headers: Mapping[str, str] | None = None,
        route: Route = DIRECT,
        signing: Signing | None = None,
    ) -> None:
        """`headers` go with every request: the family's credentials, its version. Those of `route` go besides, and
        in their place where they have the same name. `signing` makes more headers for each request, and ends with the
        client if it is a Credential. A tap that is offered now has all exchanges of the client."""
        self._ca, self._proxy = route.ca, route.proxy
        self._failures = failures
        self._faults = Faults(failures, route.proxy)
        self._tap = take_tap()
        # A replay needs no credentials, and has none.
        self._signing = None if isinstance(self._tap, Player) else signing
        self._between_bytes = timeouts.between_bytes
        self._timeout = aiohttp.ClientTimeout(connect=timeouts.connect, sock_read=timeouts.first_byte)
        own = {
            "Content-Type": _JSON,
            "Accept": _EVENTS,
            # An uncompressed answer cannot be a bomb, and compression does not shorten short events.
            "Accept-Encoding": _UNENCODED,
            "User-Agent": "a2a-gateway",
            **(headers or {}),
        }
        given = dict(route.headers)
        self._given = frozenset(name.lower() for name in given)
        self._headers = self._unless_given(own) | given
        # aiohttp tells a proxy the headers of a session, the credentials among them.
        self._session_headers = _NO_HEADERS if self._proxy is not None else self._headers
        self._session: aiohttp.ClientSession | None = None
        self._handshakes: aiohttp.ClientSession | None = None
        self._answered = False
        """Whether any request has had an answer."""

    def stream(
        self,
        url: str,
        body: bytes | None = None,
        *,
        handle: str | None = None,
        headers: Mapping[str, str] | None = None,
        documents: Collection[str] = (),
    ) -> AnswerStream[bytes]:
        """The event stream that answers a POST of `body`, or a GET: the `data` of its events. A JSON document that comes in
        its place counts as its only event, if it has one of the media types `documents`.

        The stream raises: AdapterError, when it is entered and when it is read.
        """
        request = partial(self._open, url, body, handle, headers, _EVENTS, documents=documents)
        others = dict.fromkeys(documents, DocumentReader)
        return AnswerStream(request, EventReader(), self._failures, self._between_bytes, others)

    def events(
        self,
        url: str,
        body: bytes | None = None,
        *,
        handle: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AnswerStream[ServerEvent]:
        """As `stream`, with the name and the id of each event, which costs more."""
        request = partial(self._open, url, body, handle, headers, _EVENTS)
        return AnswerStream(request, NamedEventReader(), self._failures, self._between_bytes)

    def chunks(
        self,
        url: str,
        body: bytes | None = None,
        *,
        content_type: str,
        handle: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AnswerStream[bytes]:
        """As `stream`, with the bytes of an answer of this media type as they come."""
        return self.read(url, body, ChunkReader(), content_type=content_type, handle=handle, headers=headers)

    def read(
        self,
        url: str,
        body: bytes | None,
        reader: Reader[Piece],
        *,
        content_type: str,
        handle: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AnswerStream[Piece]:
        """As `chunks`, with the pieces that `reader` makes of the bytes."""
        request = partial(self._open, url, body, handle, {"Accept": content_type, **(headers or {})}, content_type)
        return AnswerStream(request, reader, self._failures, self._between_bytes)

    async def request_json(
        self,
        method: str,
        url: str,
        body: Json = None,
        *,
        handle: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """The JSON of the answer, or None for an answer with status 404. Raises: AdapterError."""
        content = None if body is None else msgspec.json.encode(body)
        response = await self._send(method, url, content, {"Accept": _JSON}, headers)
        try:
            if response.status == _NOT_FOUND:
                # A connection whose answer is not read cannot be used again.
                await beginning(response.content, ERROR_LIMIT)
                return None
            found = await self._body(response, handle, SUCCESS, _DOCUMENT_LIMIT)
        finally:
            response.close()
        try:
            document: Json = read_document(found) if found else {}
        except ValueError as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an answer that is no JSON: {error}") from error
        return document

    async def request(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        *,
        handle: str | None = None,
        headers: Mapping[str, str] | None = None,
        expected: Container[int] = SUCCESS,
        limit: int = _DOCUMENT_LIMIT,
    ) -> Reply:
        """The whole answer. Raises: AdapterError; that of the service for a status that is not `expected`, and
        CONTRACT_BROKEN for more than `limit` bytes."""
        response = await self._send(method, url, body, {"Accept": _ANY}, headers)
        try:
            return Reply(response.status, response.headers, await self._body(response, handle, expected, limit))
        finally:
            response.close()

    def websocket(self, url: str, *, handle: str | None = None, headers: Mapping[str, str] | None = None) -> WebSocket:
        """A WebSocket to a ws:// or wss:// address, also written as http:// or https://.

        It raises: AdapterError, when it is entered, read and written. A server that has sent nothing for `between_bytes` has to
        answer a ping in that time.
        """
        return WebSocket(partial(self._shake_hands, url, handle, headers), self._failures)

    @property
    def tapped(self) -> bool:
        """Whether its exchanges are recorded, or answered from a recording."""
        return self._tap is not None

    async def aclose(self) -> None:
        for session in (self._handshakes, self._session):
            if session is not None:
                await session.close()
        if isinstance(self._signing, Credential):
            await self._signing.aclose()

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: dict[str, str],
        more: Mapping[str, str] | None = None,
        *,
        renewable: bool = True,
    ) -> aiohttp.ClientResponse:
        """`headers` replace those of every request, and so do `more`, except for the headers of the operator. `renewable` says
        whether a 401 is followed by another attempt with renewed credentials."""
        signed: Mapping[str, str] = _NO_HEADERS
        sent: Mapping[str, str] = headers
        address = readable(url, self._failures)
        if self._signing is not None:
            # A signature is about the bytes that aiohttp writes.
            signed = await self._signing(method, str(address), body or b"")
        traced = trace.current_headers()
        if more or signed or traced or self._proxy is not None:
            sent = self._merged(url, headers, traced, more or _NO_HEADERS, signed)
        try:
            response = await self._open_session().request(
                method,
                address,
                data=body if body is None or len(body) < _WHOLE_BODY_LIMIT else io.BytesIO(body),
                headers=sent,
                allow_redirects=False,
                **(self._proxy.arguments(url) if self._proxy is not None else {}),
            )
        except (aiohttp.ClientError, OSError) as error:
            failed = self._fault(error, url)
            if isinstance(error, _WITHOUT_REQUEST):
                raise failed from error
            drop_tracebacks(error)
        else:
            self._answered = True
            if response.status == _UNAUTHORISED and renewable and self._renews(signed):
                response.close()
                return await self._send(method, url, body, headers, more, renewable=False)
            if response.status != _PROXY_CREDENTIALS or self._proxy is None:
                return response
            response.close()
            failed = self._faults.refused_by_proxy(response.status)
        raise failed

    async def _body(
        self, response: aiohttp.ClientResponse, handle: str | None, expected: Container[int], limit: int
    ) -> bytes:
        """The whole body. Raises: AdapterError for another status than the expected, and for a body that is not whole."""
        if response.status not in expected:
            content = await beginning(response.content, ERROR_LIMIT)
            raise self._failures.from_response(
                response.status, response.headers, content, handle=handle, instead_of="an answer"
            )
        encoding = response.headers.get("Content-Encoding", _UNENCODED)
        if encoding != _UNENCODED:
            raise self._encoded(encoding)
        try:
            return await whole(response, limit)
        except BodyTooLarge as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an answer of more than {limit} bytes") from error
        except TimeoutError as error:
            raise self._failures.error(ErrorClass.TIMED_OUT, f"the answer stalled: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failures.error(ErrorClass.INTERRUPTED, f"the answer was cut: {error}") from error

    async def _open(
        self,
        url: str,
        body: bytes | None,
        handle: str | None,
        headers: Mapping[str, str] | None,
        content_type: str,
        *,
        documents: Collection[str] = (),
    ) -> aiohttp.ClientResponse:
        """Raises: AdapterError unless an answer of this media type begins, or one of those of `documents`."""
        response = await self._send("GET" if body is None else "POST", url, body, {}, headers)
        try:
            await self._check(response, handle, content_type, documents)
        except BaseException:
            response.close()
            raise
        return response

    async def _check(
        self, response: aiohttp.ClientResponse, handle: str | None, expected: str, documents: Collection[str]
    ) -> None:
        headers = response.headers
        content_type = media_type(headers, expected)
        encoding = headers.get("Content-Encoding", _UNENCODED)
        if not 200 <= response.status < 300 or (content_type != expected and content_type not in documents):
            body = b"" if encoding != _UNENCODED else await beginning(response.content, ERROR_LIMIT)
            what = "an event stream" if expected == _EVENTS else repr(expected)
            raise self._failures.from_response(response.status, headers, body, handle=handle, instead_of=what)
        if encoding != _UNENCODED:
            raise self._encoded(encoding)
        protocol = response.connection.protocol if response.connection is not None else None
        if isinstance(protocol, Connection):
            protocol.carry(response.content)

    async def _shake_hands(
        self, url: str, handle: str | None, headers: Mapping[str, str] | None, *, renewable: bool = True
    ) -> aiohttp.ClientWebSocketResponse:
        if self._tap is not None:
            raise self._failures.error(ErrorClass.UNREACHABLE, "a WebSocket is neither recorded nor replayed")
        url = str(readable(url.replace("ws", "http", 1) if url.startswith("ws") else url, self._failures))
        signed = await self._signing("GET", url, b"") if self._signing is not None else _NO_HEADERS
        sent = self._merged(url, {"Accept": _ANY}, trace.current_headers(), headers or _NO_HEADERS, signed)
        try:
            socket: aiohttp.ClientWebSocketResponse = await self._open_handshakes().ws_connect(
                url,
                headers=sent,
                heartbeat=self._between_bytes * _PING_SHARE,
                timeout=_CLOSING,
                max_msg_size=EVENT_LIMIT,
                **(self._proxy.arguments(url) if self._proxy is not None else {}),
            )
        except HandshakeRefused as error:
            renews = error.status == _UNAUTHORISED and renewable and self._renews(signed)
            failed = None if renews else self._handshake_failure(error, handle)
            drop_tracebacks(error)
        except (aiohttp.ClientError, OSError) as error:
            failed = self._fault(error, url)
            if isinstance(error, _WITHOUT_REQUEST):
                raise failed from error
            drop_tracebacks(error)
        else:
            return socket
        if failed is None:
            return await self._shake_hands(url, handle, headers, renewable=False)
        raise failed

    def _handshake_failure(self, refused: HandshakeRefused, handle: str | None) -> AdapterError:
        if refused.status == _PROXY_CREDENTIALS and self._proxy is not None:
            return self._faults.refused_by_proxy(refused.status)
        return self._failures.from_response(
            refused.status, refused.headers, refused.body, handle=handle, instead_of="a WebSocket"
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = self._new_session() if self._tap is None else self._tapped_session(self._tap)
        return self._session

    def _new_session(self) -> aiohttp.ClientSession:
        # The defaults of aiohttp: 100 connections, cookies kept, five minutes in all.
        return aiohttp.ClientSession(
            connector=Connector(self._ca),
            headers=self._session_headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=self._timeout,
            trust_env=False,
        )

    def _tapped_session(self, tap: Tap) -> aiohttp.ClientSession:
        from adapters.http.tapped import tapped

        return tapped(self._new_session, tap)

    def _open_handshakes(self) -> aiohttp.ClientSession:
        """The session of handshakes, over the same connector."""
        if self._handshakes is None:
            self._handshakes = aiohttp.ClientSession(
                connector=self._open_session().connector,
                connector_owner=False,
                headers=self._session_headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=self._timeout,
                trust_env=False,
                middlewares=(refuse_answers,),
            )
        return self._handshakes

    def _merged(self, url: str, headers: Mapping[str, str], *more: Mapping[str, str]) -> CIMultiDict[str]:
        """The headers of a request that the session does not have. The later replace the earlier, by names in any case."""
        merged = CIMultiDict({} if self._proxy is None else self._headers)
        merged.update(headers)
        for one in more:
            merged.update(self._unless_given(one))
        if self._proxy is not None:
            merged.update(self._proxy.headers_of(url))
        return merged

    def _unless_given(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Those that the operator does not give."""
        return {name: value for name, value in headers.items() if name.lower() not in self._given}

    def _renews(self, refused: Mapping[str, str]) -> bool:
        return isinstance(self._signing, Credential) and self._signing.renew(refused)

    def _fault(self, error: Exception, url: str) -> AdapterError:
        if isinstance(error, StaleConnection):
            # The other kept connections may have ended too: the next request goes on a new one.
            connector = self._open_session().connector
            if isinstance(connector, Connector):
                connector.close_kept()
        return self._faults.of(error, url, answered=self._answered)

    def _encoded(self, encoding: str) -> AdapterError:
        return self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an answer with Content-Encoding {encoding!r}")
