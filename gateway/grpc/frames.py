"""The frames of a connection before h2 reads them. Law: only the nine bytes in front of a frame are looked at, and the four of
a window; what a peer may ask for without being told anything has a limit over time, and what is read at once is bounded.

h2 takes the announcement of a peer that it will open no more streams (GOAWAY) for the end of the connection, with all calls
on it (python-hyper/h2 issue 1181); so that frame is taken out, and those of priorities, which mean nothing any more. h2 reads
frames in Python, on the event loop, waits for all of a frame before it looks at its size, copies what is left of a block of
headers for each of its fields, and ends the connection for an empty window of one stream.

Source: RFC 9113, sections 4.1, 6 (6.9 above all) and 10.5.
"""

from collections.abc import Callable

from h2.errors import ErrorCodes

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD, _WINDOW = 9, 4
_NUMBER, _OF_CONNECTION = 0x7FFFFFFF, bytes(4)
_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 2, 3, 4, 7, 8, 9

_LARGEST = 2**14
"""Bytes of a frame: what is allowed where nothing else is announced."""

_LARGEST_BLOCK = 2**17
"""Bytes of the frames that the headers of one call come in."""

_SMALL = 256
"""Bytes below which a frame of data carries as good as nothing."""

_AT_ONCE, _FRAME = 5000, 100
"""What is read at once: the bytes of headers, and so many for each frame. It is the work of some 25 calls."""

_BURST, _PER_SECOND = 5000, 500.0
_PER_ANSWER = 10
"""A client of grpcio answers a call with window updates of its stream and of its connection, and a ping."""

_MOST = 4 * _BURST
"""What a peer may save up."""

_SETTINGS_COST = 10
"""They may change the windows of all calls."""


class Violation(Exception):
    """A peer does what ends its connection. The text is for the log."""

    def __init__(self, text: str, code: ErrorCodes = ErrorCodes.ENHANCE_YOUR_CALM) -> None:
        """`code` is what the peer is told."""
        super().__init__(text)
        self.code = code


class _Allowance:
    """A number of times, and so many more for each second that has passed when they are used up."""

    __slots__ = ("_clock", "_filled", "_left", "_what")

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        self._what = what
        self._clock = clock
        self._left: float = _BURST
        self._filled = clock()

    def earn(self, count: int) -> None:
        self._left = min(_MOST, self._left + count)

    def spend(self, count: int) -> None:
        """Raises: Violation."""
        self._left -= count
        if self._left < 0:
            now = self._clock()
            self._left = min(_BURST, self._left + (now - self._filled) * _PER_SECOND)
            self._filled = now
            if self._left < 0:
                raise Violation(f"flood of {self._what}")


class Frames:
    """What has come on one connection. `leaving` says that the peer opens no more streams. `rest` is what is not read yet,
    `empty_window` the stream of an empty window, which is an error of that stream behind what was read; 0 is none."""

    __slots__ = (
        "_block",
        "_dropping",
        "_empty",
        "_head",
        "_latest",
        "_left",
        "_needed",
        "_preface",
        "_resets",
        "_work",
        "empty_window",
        "leaving",
        "rest",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self.leaving = False
        self.rest = b""
        self.empty_window = 0
        self._work = 0
        self._empty = _Allowance("frames that carry nothing", clock)
        self._resets = _Allowance("resets", clock)
        self._head, self._needed = b"", _HEAD
        self._preface = _PREFACE
        self._left = 0
        self._dropping = False
        self._latest = 0
        self._block = 0

    @property
    def begun(self) -> bool:
        """Whether the peer has said that it speaks HTTP/2."""
        return not self._preface

    def answered(self) -> None:
        """The gateway has taken a call or told the peer something, which it may answer."""
        self._empty.earn(_PER_ANSWER)

    def made_reset(self) -> None:
        """The gateway had to reset a stream by what the peer did, or has ended its call without its message. Raises:
        Violation."""
        self._resets.spend(1)

    def passed(self, data: bytes) -> bytes:
        """The data without the frames that are taken out, up to what is read at once; it begins with the `rest` of before.
        Raises: Violation."""
        if self.rest:
            data, self.rest = self.rest + data, b""
        kept = []
        self._work = 0
        at, end = self._begun(data), len(data)
        if at:
            kept.append(data[:at])
        while at < end:
            if self._left:
                until = min(end, at + self._left)
                self._left -= until - at
                if not self._dropping:
                    kept.append(data[at:until])
                at = until
                continue
            if self._work >= _AT_ONCE:
                self.rest = data[at:]
                break
            until = at + self._needed - len(self._head)
            head = self._head + data[at:until] if self._head else data[at:until]
            at = until
            if at > end:
                self._head = head
                break
            if self._needed == _HEAD:
                self._begin(head)
                if self._needed > _HEAD:
                    self._head = head
                    continue
            else:
                self._widen(head)
                self._head, self._needed = b"", _HEAD
            if not self._dropping:
                kept.append(head)
        return b"".join(kept)

    def _begun(self, data: bytes) -> int:
        """The number of bytes that belong to the preface."""
        if not self._preface:
            return 0
        part = data[: len(self._preface)]
        if not self._preface.startswith(part):
            raise Violation("no HTTP/2", ErrorCodes.PROTOCOL_ERROR)
        self._preface = self._preface[len(part) :]
        return len(part)

    def _begin(self, head: bytes) -> None:
        """Raises: Violation."""
        size, kind, self._head = int.from_bytes(head[:3]), head[3], b""
        if size > _LARGEST:
            raise Violation("a frame that is too large", ErrorCodes.FRAME_SIZE_ERROR)
        self._work += _FRAME
        self._left = size
        self._dropping = kind in (_GOAWAY, _PRIORITY)
        if kind == _HEADERS:
            self._work += size
            self._block = size
            # A call is paid for by the reset that ends it; trailers are no call.
            number = _stream(head)
            if number > self._latest:
                self._latest = number
            else:
                self._empty.spend(1)
        elif kind == _CONTINUATION:
            self._work += size
            self._block += size
            if self._block > _LARGEST_BLOCK:
                raise Violation("headers that are too large")
        elif kind == _RST_STREAM:
            self._resets.spend(1)
        elif kind == _SETTINGS:
            self._work += _FRAME * _SETTINGS_COST
            self._empty.spend(_SETTINGS_COST)
        elif kind != _DATA or size < _SMALL:
            self._empty.spend(1)
            if kind == _GOAWAY:
                self.leaving = True
            elif kind == _WINDOW_UPDATE and size == _WINDOW and head[5:] != _OF_CONNECTION:
                self._left, self._needed = 0, _HEAD + _WINDOW

    def _widen(self, frame: bytes) -> None:
        """The window of a stream. Raises: Violation."""
        if int.from_bytes(frame[_HEAD:]) & _NUMBER or not _stream(frame):
            return
        self.empty_window = _stream(frame)
        if self.empty_window > self._latest:
            raise Violation("a window of a stream that is not open", ErrorCodes.PROTOCOL_ERROR)
        self._dropping = True
        # What follows is read behind the end of the stream.
        self._work = _AT_ONCE


def _stream(head: bytes) -> int:
    """The number of the stream of a frame."""
    return int.from_bytes(head[5:_HEAD]) & _NUMBER
