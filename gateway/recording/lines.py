"""The events of an answer as lines of a file: `[seconds, name, data]`. Law: the line gives back each byte.

The data of an event stands in its line as the JSON that it was. What has no such form is `[seconds, "raw", text]`, and
`[seconds, "base64", text]` where it is no text either. An event whose other lines are not the usual ones has them as a fourth
item, with nothing behind its `data: `.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator

import msgspec

from gateway.a2a.model import Json

RAW, BYTES = "raw", "base64"
UNNAMED = "data"
"""The name of an event without one."""

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_END = 4
_DATA = re.compile(rb"((?:[^\r\n]*\r?\n)*?)data: ([{\[\"][^\r\n]*)(\r?\n[^\0]*)")
_NAME = re.compile(r"^event: ([^\r\n]*)\r?$", re.MULTILINE)
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""JSON may hold these as they are, YAML may not. JSON escapes the others."""


class Blocks:
    """Cuts a stream of events behind each empty line. All pieces together are the stream."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes."""
        begin = max(0, len(self._rest) - _LONGEST_END)
        self._rest += chunk
        whole, at = [], 0
        while (end := _EVENT_END.search(self._rest, max(at, begin))) is not None:
            whole.append(bytes(self._rest[at : end.end()]))
            at = end.end()
        del self._rest[:at]
        return whole

    def rest(self) -> bytes:
        rest = bytes(self._rest)
        self._rest.clear()
        return rest


class Rows:
    """Cuts an answer of another kind behind its last complete line, so that no word stands in two pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        self._rest += chunk
        end = self._rest.rfind(b"\n") + 1
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        return [whole] if whole else []

    def rest(self) -> bytes:
        rest = bytes(self._rest)
        self._rest.clear()
        return rest


class Event(msgspec.Struct):
    """An event that has the usual form: JSON in one line of data. `frame` is all else, with a gap behind its `data: `."""

    name: str
    data: str
    frame: str

    @classmethod
    def of(cls, block: bytes) -> "Event | None":
        """None for a block of another form."""
        found = _DATA.fullmatch(block)
        if found is None or b"data:" in found[1] or b"data:" in found[3]:
            return None
        try:
            data, frame = found[2].decode(), f"{found[1].decode()}data: {found[3].decode()}"
            msgspec.json.decode(data, type=msgspec.Raw)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
            return None
        name = _NAME.search(frame)
        return cls(UNNAMED if name is None else name[1], data, frame)

    def block(self) -> bytes:
        before, mark, after = self.frame.rpartition("data: ")
        return f"{before}{mark}{self.data}{after}".encode()


def made(name: str, value: Json) -> bytes:
    """The block of an event. Raises: TypeError, ValueError for a value that is no JSON."""
    return Event(name, msgspec.json.encode(value).decode(), _frame(name)).block()


def line(at: float, block: bytes) -> str:
    """What the file has for this block."""
    event = Event.of(block)
    if event is not None and event.name not in (RAW, BYTES) and _UNPRINTABLE.search(event.data) is None:
        items = [str(at), flow(event.name), event.data]
        if event.frame != _frame(event.name):
            items.append(flow(event.frame))
        written = f"[{', '.join(items)}]"
        if _is(written, at, block):
            return written
    try:
        return f"[{at}, {flow(RAW)}, {flow(block.decode())}]"
    except UnicodeDecodeError:
        return f"[{at}, {flow(BYTES)}, {flow(base64.b64encode(block).decode())}]"


def read(written: str) -> tuple[float, bytes]:
    """The reverse of `line`. Raises: ValueError."""
    try:
        at, name, *rest = msgspec.json.decode(written, type=list[msgspec.Raw])
        seconds, kind = msgspec.json.decode(at, type=float), msgspec.json.decode(name, type=str)
        match kind, rest:
            case "raw", [whole]:
                return seconds, msgspec.json.decode(whole, type=str).encode()
            case "base64", [whole]:
                return seconds, base64.b64decode(msgspec.json.decode(whole, type=str))
            case _, [data]:
                return seconds, Event(kind, bytes(data).decode(), _frame(kind)).block()
            case _, [data, frame]:
                return seconds, Event(kind, bytes(data).decode(), msgspec.json.decode(frame, type=str)).block()
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{written[:60]!r} is no event: {error}") from error
    raise ValueError(f"{written[:60]!r} is no event")


def reads(written: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The pieces as they were read: those with one time came together."""
    together: list[bytes] = []
    latest = 0.0
    for at, block in written:
        if together and at != latest:
            yield latest, b"".join(together)
            together = []
        latest = at
        together.append(block)
    if together:
        yield latest, b"".join(together)


def flow(value: Json) -> str:
    """JSON in one line that YAML reads as well."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def _is(written: str, at: float, block: bytes) -> bool:
    try:
        return read(written) == (at, block)
    except ValueError:
        return False


def _frame(name: str) -> str:
    return "data: \n\n" if name == UNNAMED else f"event: {name}\ndata: \n\n"
