"""Sessions in the place of aiohttp's, for a client with a tap: one records what goes over the wire, one answers from a
recording.

Law: they have what HttpClient uses of a session and its answers, and no more. Without a tap nothing of this is imported.
"""

import asyncio
import io
from collections.abc import Callable, Mapping
from typing import Any, cast

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from adapters.http.connection import StaleConnection
from gateway.ports.wire import Answer, End, Player, Recorder, Request, Taking, Tap


def tapped(open_session: Callable[[], aiohttp.ClientSession], tap: Tap) -> aiohttp.ClientSession:
    """A session whose exchanges are recorded, or answered from a recording; only one that records is opened."""
    session = _RecordingSession(open_session(), tap) if isinstance(tap, Recorder) else _ReplayingSession(tap)
    return cast("aiohttp.ClientSession", session)


# --- recording


class _RecordingSession:
    def __init__(self, session: aiohttp.ClientSession, recorder: Recorder) -> None:
        self._session = session
        self._recorder = recorder
        self.connector = session.connector

    async def request(
        self, method: str, url: URL, *, data: bytes | io.BytesIO | None = None, headers: Mapping[str, str], **more: Any
    ) -> "_RecordedResponse":
        sent = CIMultiDict(self._session.headers)
        sent.update(headers)
        taking = self._recorder.begin(Request(method, str(url), dict(sent), _bytes(data)))
        try:
            response = await self._session.request(method, url, data=data, headers=headers, **more)
        except BaseException as error:
            taking.ended(_end(error), type(error).__name__)
            raise
        taking.answered(response.status, response.headers)
        return _RecordedResponse(response, taking)

    async def close(self) -> None:
        await self._session.close()


class _RecordedResponse:
    def __init__(self, response: aiohttp.ClientResponse, taking: Taking) -> None:
        self._response = response
        self._taking = taking
        self.status = response.status
        self.headers = response.headers
        self.content_length = response.content_length
        self.content = _RecordedBody(response.content, taking)

    @property
    def connection(self) -> object:
        return self._response.connection

    def close(self) -> None:
        # A reader that has all does not read the end.
        self._taking.ended(End.COMPLETE if self._response.content.at_eof() else End.CANCELLED)
        self._response.close()


class _RecordedBody:
    def __init__(self, content: aiohttp.StreamReader, taking: Taking) -> None:
        self._content = content
        self._taking = taking

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def readany(self) -> bytes:
        try:
            chunk = await self._content.readany()
        except BaseException as error:
            self._taking.ended(_end(error), type(error).__name__)
            raise
        if chunk:
            self._taking.received(chunk)
        else:
            self._taking.ended(End.COMPLETE)
        return chunk


def _bytes(data: bytes | io.BytesIO | None) -> bytes | None:
    return data.getvalue() if isinstance(data, io.BytesIO) else data


def _end(error: BaseException) -> End:
    match error:
        case aiohttp.ConnectionTimeoutError() | aiohttp.ClientConnectorError():
            return End.UNREACHABLE
        case TimeoutError():
            return End.TIMEOUT
        case StaleConnection():
            return End.STALE
        case aiohttp.ClientConnectionError() | OSError():
            return End.CUT
        case Exception():
            return End.BROKEN
    return End.CANCELLED


# --- replaying

_ERRORS: Mapping[End, type[Exception]] = {
    End.UNREACHABLE: aiohttp.ConnectionTimeoutError,
    End.TIMEOUT: aiohttp.SocketTimeoutError,
    End.STALE: StaleConnection,
    End.BROKEN: aiohttp.ClientError,
}
"""What a client hears of an exchange that ended so. Any other end is a cut."""


class _ReplayingSession:
    connector = None

    def __init__(self, player: Player) -> None:
        self._player = player

    async def request(
        self, method: str, url: URL, *, data: bytes | io.BytesIO | None = None, headers: Mapping[str, str], **_: Any
    ) -> "_ReplayedResponse":
        """Raises: ReplayMissing."""
        answer = self._player.answer(Request(method, str(url), dict(headers), _bytes(data)))
        began = asyncio.get_running_loop().time()
        if answer.status is None:
            await asyncio.sleep(answer.ended)
            await _fail(answer.how)
        await asyncio.sleep(answer.at)
        return _ReplayedResponse(answer, began)

    async def close(self) -> None:
        return


class _ReplayedResponse:
    connection = None
    content_length = None

    def __init__(self, answer: Answer, began: float) -> None:
        self.status = answer.status
        self.headers = CIMultiDict(answer.headers)
        self.content = _ReplayedBody(answer, began)

    def close(self) -> None:
        return


class _ReplayedBody:
    """The body of an answer to a request that began at this time of the event loop."""

    def __init__(self, answer: Answer, began: float) -> None:
        self._answer = answer
        self._began = began
        self._next = 0
        self._at_eof = False
        self._error: BaseException | None = None
        self._broken = asyncio.Event()

    def at_eof(self) -> bool:
        return self._at_eof

    def set_exception(self, error: BaseException) -> None:
        """Who waits for the next read hears this error."""
        self._error = error
        self._broken.set()

    async def readany(self) -> bytes:
        answer = self._answer
        if self._at_eof:
            return b""
        if self._next < len(answer.reads):
            at, read = answer.reads[self._next]
            await self._wait(at)
            self._next += 1
            return read
        if answer.how is End.CANCELLED:
            # Then who asked left, and leaves now.
            await self._wait(None)
        await self._wait(answer.ended)
        if answer.how is not End.COMPLETE:
            await _fail(answer.how)
        self._at_eof = True
        return b""

    async def _wait(self, at: float | None) -> None:
        """Until so many seconds after the request, None for ever. Raises: the error that is set."""
        left = None if at is None else max(0.0, self._began + at - asyncio.get_running_loop().time()) if at else 0.0
        if left == 0.0 and self._error is None:
            await asyncio.sleep(0)
        else:
            try:
                await asyncio.wait_for(self._broken.wait(), left)
            except TimeoutError:
                return
        if self._error is not None:
            raise self._error


async def _fail(how: End) -> None:
    """Raises: what the client heard; an exchange that was cancelled waits to be cancelled again."""
    if how is End.CANCELLED:
        await asyncio.Event().wait()
    raise _ERRORS.get(how, aiohttp.ClientConnectionError)(f"the recording ends here: {how}")
