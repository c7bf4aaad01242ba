"""The server-sent events of one HTTP response. Law: a silence, a cut and a broken stream are AdapterErrors."""

from functools import partial

import aiohttp

from adapters.http.failures import Failures
from adapters.http.sse import EventReader, StreamTooLarge
from gateway.foundation.watchdog import Watchdog
from gateway.ports.adapter import ErrorClass


class EventStream:
    """Iterating gives, for each network read that completes any event, the `data` of these events.

    Set `answered` once the answer is complete: then the rest is read, so that the connection can be used again.
    """

    def __init__(self, content: aiohttp.StreamReader, failures: Failures, between_bytes: float) -> None:
        """`between_bytes`: the longest wait for the next byte, in seconds."""
        self.answered = False
        self._content = content
        self._failures = failures
        # The watchdog holds the body and not this stream: a cycle of objects would be left to the garbage collector.
        self._silence = Watchdog(between_bytes, partial(_stall, content))
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
