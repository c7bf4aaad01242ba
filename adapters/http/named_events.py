"""Server-sent events with their names and ids, out of a byte stream with any cuts. Law: `sse.py` reads streams whose data says
all; this reader is for services that say it in `event:` and `id:`.
"""

import re

import msgspec

from adapters.http.half_characters import HalfCharacters
from adapters.http.sse import BACKSLASH, BOM, EVENT_LIMIT, LineReader, StreamTooLarge, is_whole

_CR = ord("\r")
_NO_ID = re.compile(rb"^$|[\r\0]")
"""An empty id takes the earlier one away; the others are none."""


class ServerEvent(msgspec.Struct, frozen=True, gc=False):
    """`name` is `message` for an event without one. `id` is that of this event or of the latest before it that had one, as a
    client repeats it in `Last-Event-ID`; "" before the first. `data` is empty only where the event says so itself.

    Source: WHATWG HTML, section 9.2.6.
    """

    name: str
    id: str
    data: bytes


class NamedEventReader(LineReader):
    """Gives the events that have data, with whole characters. Comments, `retry:` and unknown fields are read over."""

    __slots__ = ("_data", "_data_size", "_halves", "_id", "_line", "_line_size", "_name", "_started")

    def __init__(self) -> None:
        super().__init__()
        self._line: list[bytes] = []
        """The pieces of a line whose end has not come."""
        self._line_size = 0
        self._name = ""
        self._id = ""
        self._data: list[bytes] = []
        self._data_size = 0
        self._halves = HalfCharacters()
        self._started = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that `chunk` completes. Raises: StreamTooLarge."""
        chunk = self._begin(chunk)
        events: list[ServerEvent] = []
        if self._line or self._data or self._name:
            place = _behind_event(chunk)
            self._take_lines(chunk[:place], events)
            chunk = chunk[place:]
        if self._started and not (self._line or self._data or self._name):
            chunk = chunk[self._take_plain(chunk, events) :]
        self._take_lines(chunk, events)
        return events

    def _take_lines(self, chunk: bytes, events: list[ServerEvent]) -> None:
        *lines, rest = self._split(chunk)
        if lines and self._line:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line.clear()
            self._line_size = 0
        if rest:
            self._line.append(rest)
            self._line_size += len(rest)
            self._check_event()
        events += [event for line in lines if (event := self._take(line)) is not None]

    def _take_plain(self, chunk: bytes, events: list[ServerEvent]) -> int:
        """Adds the plain events at the beginning of `chunk`; gives the place behind them."""
        place = 0
        while (plain := _plain_event(chunk, place)) is not None:
            name, data, number, place = plain
            if number:
                self._id = number.decode("utf-8", "replace")
            events.append(ServerEvent(name.decode("utf-8", "replace") or "message", self._id, self._whole(data)))
        return place

    def _split(self, chunk: bytes) -> list[bytes]:
        """The lines, of which the last has no end."""
        if b"\r" not in chunk:
            return chunk.split(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.split(b"\r\n")
        ends = len(lines) - 1
        # Where every line ends like this, to put other ends in their place would take most of the time.
        if chunk.count(b"\r") == ends == chunk.count(b"\n"):
            return lines
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def finish(self) -> ServerEvent | None:
        """The last event of a stream that lacks the empty line after it; None unless its data is complete."""
        if self._line:
            self._take(b"".join(self._line))
            self._line.clear()
        event = self._take(b"")
        return event if event is not None and is_whole(event.data) else None

    def _take(self, line: bytes) -> ServerEvent | None:
        """The event that this line ends."""
        if not self._started:
            self._started = True
            line = line.removeprefix(BOM)
        if not line:
            return self._end()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
            self._check_event()
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        return None

    def _end(self) -> ServerEvent | None:
        event = (
            ServerEvent(self._name or "message", self._id, self._whole(b"\n".join(self._data))) if self._data else None
        )
        self._name = ""
        self._data.clear()
        self._data_size = 0
        return event

    def _whole(self, data: bytes) -> bytes:
        return data if BACKSLASH not in data else self._halves.join(data)

    def _check_event(self) -> None:
        if self._line_size + self._data_size > EVENT_LIMIT:
            raise StreamTooLarge


def _plain_event(chunk: bytes, place: int) -> tuple[bytes, bytes, bytes, int] | None:
    """Name, data and id of the event at this place, and the place behind it: if it has one line each of `event`, `data` and
    perhaps `id`, in this order and with equal ends, as nearly all have. To take lines one by one costs three times as much."""
    # To look for one byte is ten times as fast as to look for two.
    named = chunk.find(b"\n", place)
    if named < 0 or not (chunk.startswith(b"event: ", place) and chunk.startswith(b"data: ", named + 1)):
        return None
    end = b"\r\n" if chunk[named - 1] == _CR else b"\n"
    more = len(end) - 1
    last = told = chunk.find(b"\n", named + 7)
    if chunk.startswith(b"id: ", told + 1):
        last = chunk.find(b"\n", told + 1)
    if told < 0 or last < 0 or not chunk.startswith(end, last + 1):
        return None
    name, data, number = chunk[place + 7 : named - more], chunk[named + 7 : told - more], chunk[told + 5 : last - more]
    if (
        not (chunk.startswith(end, told - more) and chunk.startswith(end, last - more))
        or b"\r" in data
        or b"\r" in name
    ):
        return None
    return None if last > told and _NO_ID.search(number) else (name, data, number, last + 1 + len(end))


def _behind_event(chunk: bytes) -> int:
    """The place behind the first empty line that follows another; that of the end where there is none."""
    place = chunk.find(b"\n")
    while place >= 0:
        for end in (b"\n", b"\r\n"):
            if chunk.startswith(end, place + 1):
                return place + 1 + len(end)
        place = chunk.find(b"\n", place + 1)
    return len(chunk)
