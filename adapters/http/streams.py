"""An answer that comes piece by piece: events, messages, bytes. Law: a silence and a cut are an AdapterError; what the bytes
mean is the affair of a reader.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar

import aiohttp

from adapters.http.failures import Failures
from gateway.foundation.watchdog import Watchdog
from gateway.ports.adapter import ErrorClass

_DRAIN_SECONDS = 0.2

Piece = TypeVar("Piece")


def media_type(headers: Mapping[str, str], default: str = "") -> str:
    """The media type of an answer, in lower case and without parameters."""
    return headers.get("Content-Type", default).partition(";")[0].strip().lower()


class UnreadableStream(Exception):
    """The bytes are not what the reader reads; the text says why, for a log."""


class Reader(Protocol[Piece]):
    """Makes pieces out of bytes that are cut anywhere."""

    def feed(self, chunk: bytes) -> list[Piece]:
        """The pieces that `chunk` completes. Raises: UnreadableStream."""

    def finish(self) -> Piece | None:
        """The last piece of a stream that has ended, if it lacks its end only. Raises: UnreadableStream for one that is cut."""


_NO_OTHERS: Mapping[str, Callable[[], Reader[Any]]] = {}


class AnswerStream(Generic[Piece]):
    """The answer to one request, which `async with` sends and ends. Iterating gives, for each network read that completes any
    piece, these pieces.

    Set `answered` once the answer is complete: then the rest is read, so that the connection can be used again.
    """

    def __init__(
        self,
        request: Callable[[], Awaitable[aiohttp.ClientResponse]],
        reader: Reader[Piece],
        failures: Failures,
        between_bytes: float,
        others: Mapping[str, Callable[[], Reader[Piece]]] = _NO_OTHERS,
    ) -> None:
        """`request` gives the response whose body `reader` reads, or for a media type of `others` one that is made for it.
        `between_bytes` is the longest wait for the next byte, in seconds."""
        self.answered = False
        self._request = request
        self._failures = failures
        self._between_bytes = between_bytes
        self._reader = reader
        self._others = others
        self._ended = False

    @property
    def status(self) -> int:
        """The status of the response. Known once the stream is entered."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response, by names in any case. Known once the stream is entered."""
        return self._response.headers

    async def __aenter__(self) -> Self:
        self._response = await self._request()
        self._content = content = self._response.content
        if self._others and (other := self._others.get(media_type(self._response.headers))) is not None:
            self._reader = other()
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

    async def __anext__(self) -> list[Piece]:
        while not self._ended:
            if pieces := await self._read():
                return pieces
        raise StopAsyncIteration

    async def _read(self) -> list[Piece]:
        self._silence.begin()
        try:
            chunk = await self._content.readany()
            if chunk:
                return self._reader.feed(chunk)
        except UnreadableStream as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, str(error)) from error
        except TimeoutError as error:
            raise self._failures.error(ErrorClass.TIMED_OUT, f"the stream stalled: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._failures.error(ErrorClass.INTERRUPTED, f"the stream was cut: {error}") from error
        finally:
            self._silence.end()
        self._ended = True
        try:
            last = self._reader.finish()
        except UnreadableStream as error:
            raise self._failures.error(ErrorClass.INTERRUPTED, f"the stream was cut: {error}") from error
        return [last] if last else []


async def _drain(content: aiohttp.StreamReader) -> None:
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while await content.readany():
                pass
