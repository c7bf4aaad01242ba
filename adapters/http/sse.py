"""Server-sent events out of a byte stream with any cuts. Law: the read that completes an event gives it out."""

import re

import msgspec

from adapters.http.half_characters import HalfCharacters
from adapters.http.streams import UnreadableStream

EVENT_LIMIT = 32 * 1024 * 1024
STREAM_LIMIT = 4 * EVENT_LIMIT
"""A Responses server sends every text four times."""
DONE = b"[DONE]"
"""The last event of many servers: no JSON."""

BOM = b"\xef\xbb\xbf"
"""What a stream may begin with."""

BACKSLASH = ord("\\")
"""A text without one has no half of a character. To look for one byte costs next to nothing."""

_whole_json = msgspec.json.Decoder(msgspec.Raw)


_EVENTS = re.compile(rb"(?:event:[^\n]*+\n)?+data: ([^\n]*+)\n\n|((?:[^\n]++\n)++)\n")
"""The data of an event with a name or none and one line of data, as nearly every event is; else the lines of the event."""


class StreamTooLarge(UnreadableStream):
    """One event, or all events together, exceed the limit."""

    def __init__(self) -> None:
        super().__init__("the answer is too large")


def is_whole(data: bytes) -> bool:
    """Whether this is all the data of an event, as far as JSON tells."""
    if not data or data == DONE:
        return True
    try:
        _whole_json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


class LimitedReader:
    """Counts what comes, up to STREAM_LIMIT."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        self._size = 0

    def _count(self, chunk: bytes) -> None:
        """Raises: StreamTooLarge."""
        self._size += len(chunk)
        if self._size > STREAM_LIMIT:
            raise StreamTooLarge


class LineReader(LimitedReader):
    """Reads lines with any of the three ends. A chunk may end between the CR and the LF of one."""

    __slots__ = ("_after_cr",)

    def __init__(self) -> None:
        super().__init__()
        self._after_cr = False

    def _begin(self, chunk: bytes) -> bytes:
        """The chunk without the second half of a line end. Raises: StreamTooLarge."""
        self._count(chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            return chunk.removeprefix(b"\n")
        return chunk


class EventReader(LineReader):
    """Gives the `data` of events with whole characters, without names, ids, comments and events that have no data.

    Source: WHATWG HTML, section 9.2.6. The backends of today repeat an event's name in its data, or give none.
    """

    __slots__ = ("_halves", "_pending", "_pending_size", "_started")

    def __init__(self) -> None:
        super().__init__()
        self._halves = HalfCharacters()
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes. Raises: StreamTooLarge."""
        chunk = self._begin(chunk)
        if b"\r" in chunk:
            # JSON escapes its line breaks, so a bare CR is always the end of a line.
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        pending = self._pending
        if pending:
            closes = b"\n\n" in chunk or (chunk.startswith(b"\n") and pending[-1].endswith(b"\n"))
            self._keep(chunk)
            if not closes:
                return []
            chunk = b"".join(pending)
            pending.clear()
            self._pending_size = 0
        end = chunk.rfind(b"\n\n") + 2
        if end < 2:
            self._keep(chunk)
            return []
        self._keep(chunk[end:])
        begin = 0 if self._started or not chunk.startswith(BOM) else len(BOM)
        self._started = True
        events = [data for plain, block in _EVENTS.findall(chunk, begin, end) if (data := plain or _data(block))]
        return events if BACKSLASH not in chunk else [self._halves.join(data) for data in events]

    def finish(self) -> bytes:
        """The last event of a stream that lacks the empty line after it; empty unless the event is complete."""
        block = b"".join(self._pending)
        data = self._halves.join(_data(block if self._started else block.removeprefix(BOM)))
        return data if not data or is_whole(data) else b""

    def _keep(self, piece: bytes) -> None:
        if piece:
            self._pending.append(piece)
            self._pending_size += len(piece)
            if self._pending_size > EVENT_LIMIT:
                raise StreamTooLarge


def _data(block: bytes) -> bytes:
    lines = (line.removeprefix(b"data:") for line in block.split(b"\n") if line.startswith(b"data:"))
    return b"\n".join(line.removeprefix(b" ") for line in lines)
