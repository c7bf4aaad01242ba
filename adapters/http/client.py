"""The one module that speaks HTTP to backends: one client per adapter, event streams in, every fault an AdapterError.

Law: no proxy, cookie, redirect or retry behind the core's back; the key goes to the configured host only.
"""

import asyncio
import io
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from weakref import WeakKeyDictionary

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler

from adapters.http.failures import Failures
from adapters.http.settings import Timeouts
from adapters.http.sse import EventReader, StreamTooLarge
from gateway.a2a.model import Json
from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.foundation.watchdog import Watchdog
from gateway.ports.adapter import AdapterError, ErrorClass

_ERROR_BODY_LIMIT = 64 * 1024
_DOCUMENT_LIMIT = 4 * 1024 * 1024
_DRAIN_SECONDS = 0.2

_EVENTS = "text/event-stream"
_JSON = "application/json"

# Above this size aiohttp warns about a body of bytes; it writes a file in pieces.
_WHOLE_BODY_LIMIT = 1024 * 1024


class HttpClient:
    """Connections to one backend, opened when the first request needs them, in the loop that runs then."""

    def __init__(self, timeouts: Timeouts, failures: Failures, api_key: str = "") -> None:
        self._failures = failures
        self._between_bytes = timeouts.between_bytes
        self._timeout = aiohttp.ClientTimeout(connect=timeouts.connect, sock_read=timeouts.first_byte)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": _EVENTS,
            # What is not compressed cannot be a bomb, and short events do not get shorter.
            "Accept-Encoding": "identity",
            "User-Agent": "a2a-gateway",
        }
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._session: aiohttp.ClientSession | None = None
        self._reading: WeakKeyDictionary[ResponseHandler, aiohttp.StreamReader] = WeakKeyDictionary()

    def post_stream(
        self, url: str, body: bytes, *, handle: str | None = None
    ) -> AbstractAsyncContextManager["EventStream"]:
        """The event stream that answers `body`. `handle` is the one that the request goes on from.

        Raises: AdapterError, also while the stream is read.
        """
        return self._stream("POST", url, body, handle)

    def get_stream(self, url: str, *, handle: str) -> AbstractAsyncContextManager["EventStream"]:
        """The event stream that stands there. Raises: as `post_stream`."""
        return self._stream("GET", url, None, handle)

    @asynccontextmanager
    async def _stream(
        self, method: str, url: str, body: bytes | None, handle: str | None
    ) -> AsyncGenerator["EventStream", None]:
        response = await self._send(method, url, body, _EVENTS)
        try:
            await self._check(response, handle)
            stream = EventStream(response, self._failures, self._between_bytes)
            try:
                yield stream
            finally:
                stream.close()
                if stream.answered and not response.content.at_eof():
                    await _drain(response.content)
        finally:
            response.close()

    async def ask(self, method: str, url: str, body: Json = None, *, handle: str | None = None) -> Json:
        """The JSON that answers, None where there is no such thing (404). `handle` is the one that is asked about.

        Raises: AdapterError.
        """
        response = await self._send(method, url, None if body is None else msgspec.json.encode(body), _JSON)
        try:
            told = await _beginning(response.content, _DOCUMENT_LIMIT)
            if response.status == 404:
                return None
            if 200 <= response.status < 300:
                return msgspec.json.decode(told) if told else {}
            raise self._failures.of_answer(response.status, response.headers, told, handle=handle)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an answer that is no JSON: {error}") from error
        finally:
            response.close()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def get_json(self, url: str) -> Json:
        """What stands there; None where nothing does, or nothing that is JSON. Raises: AdapterError."""
        response = await self._send("GET", url, None, _JSON)
        try:
            told = await _beginning(response.content, _DOCUMENT_LIMIT)
            if response.status in (401, 403):
                raise self._failures.of_answer(response.status, response.headers, told)
            return msgspec.json.decode(told) if response.status == 200 else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        finally:
            response.close()

    async def _send(self, method: str, url: str, body: bytes | None, accept: str) -> aiohttp.ClientResponse:
        try:
            return await self._open_session().request(
                method,
                url,
                data=body if body is None or len(body) < _WHOLE_BODY_LIMIT else io.BytesIO(body),
                headers=self._headers if accept is _EVENTS else self._headers | {"Accept": accept},
                timeout=self._timeout,
                allow_redirects=False,
            )
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise self._failed(ErrorClass.UNREACHABLE, error) from error
        except TimeoutError as error:
            raise self._failed(ErrorClass.TIMED_OUT, error) from error
        except (aiohttp.ClientConnectionError, OSError) as error:
            # Also on a kept connection, that was perhaps closed while idle: the request may have arrived.
            raise self._failed(ErrorClass.INTERRUPTED, error) from error
        except aiohttp.ClientError as error:
            # Its request holds the key, so it is not chained.
            failed = self._failed(ErrorClass.CONTRACT_BROKEN, error)
            drop_tracebacks(error)
        raise failed

    async def _check(self, response: aiohttp.ClientResponse, handle: str | None) -> None:
        """Raises: AdapterError unless an event stream begins."""
        headers = response.headers
        content_type = headers.get("Content-Type", "text/event-stream").partition(";")[0].strip().lower()
        encoding = headers.get("Content-Encoding", "identity")
        if not 200 <= response.status < 300 or content_type != "text/event-stream":
            told = b"" if encoding != "identity" else await _beginning(response.content, _ERROR_BODY_LIMIT)
            raise self._failures.of_answer(response.status, headers, told, handle=handle)
        if encoding != "identity":
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an answer with Content-Encoding {encoding!r}")
        protocol = response.connection.protocol if response.connection is not None else None
        if protocol is not None:
            # aiohttp makes a timer for each chunk: from here on the stream does without.
            protocol.read_timeout = None
            protocol.start_timeout()
            self._watch(protocol, response.content)

    def _watch(self, protocol: ResponseHandler, content: aiohttp.StreamReader) -> None:
        """Tells a reader when its connection is lost: aiohttp (3.14) does not if the framing of the body is broken."""
        if protocol not in self._reading and protocol.closed is not None:
            protocol.closed.add_done_callback(lambda closed: self._lost(protocol, closed))
        self._reading[protocol] = content

    def _lost(self, protocol: ResponseHandler, closed: asyncio.Future[None]) -> None:
        closed.exception()  # asked for, or asyncio reports it as forgotten
        content = self._reading.pop(protocol, None)
        if content is not None and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the body's framing is broken"))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # aiohttp's own limits: 100 connections, cookies kept, five minutes in all.
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    def _failed(self, kind: ErrorClass, error: Exception) -> AdapterError:
        return self._failures.error(kind, f"{type(error).__name__}: {error}")


class _Connector(aiohttp.TCPConnector):
    """Its connections go on reading only when they had stopped."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit, keepalive_timeout=CLIENT_KEEP_ALIVE)
        connection: type[ResponseHandler] = _Connection
        self._factory = partial(connection, loop=self._loop)


class _Connection(ResponseHandler):
    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp (3.14) asks for it, and parses nothing once more, after every chunk that was read: 3 % of a turn.
        if self._reading_paused:
            super().resume_reading(resume_parser)


class EventStream:
    """Iterating gives, for each network read that completes any, the `data` of its events.

    Set `answered` once the answer is whole: then what is left is read, so that the connection can be used again.
    """

    def __init__(self, response: aiohttp.ClientResponse, failures: Failures, between_bytes: float) -> None:
        """`between_bytes`: how long a read may wait for anything, in seconds."""
        self.answered = False
        self._content = response.content
        self._failures = failures
        # It holds the body and not this stream: a ring of objects would be left to the garbage collector.
        self._silence = Watchdog(between_bytes, partial(_stall, response.content))
        self._reader = EventReader()
        self._ended = False

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> list[bytes]:
        while not self._ended:
            if events := await self._read():
                return events
        raise StopAsyncIteration

    def close(self) -> None:
        self._silence.close()

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


def _stall(content: aiohttp.StreamReader) -> None:
    content.set_exception(aiohttp.SocketTimeoutError("nothing was heard for too long"))


async def _drain(content: aiohttp.StreamReader) -> None:
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await content.readany():
                pass


async def _beginning(content: aiohttp.StreamReader, limit: int) -> bytes:
    """What an error says about itself; that it is cut short or stalls must not hide its status."""
    told = b""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        while len(told) < limit and (piece := await content.readany()):
            told += piece
    return told[:limit]
