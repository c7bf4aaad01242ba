"""The frames of a connection before h2 reads them. Law: only the nine bytes in front of a frame are looked at; what a peer may
ask for without being told anything has a limit over time.

h2 takes the announcement of a peer that it will open no more streams (GOAWAY) for the end of the connection, with all calls
on it (python-hyper/h2 issue 1181); so that frame is taken out, and those of priorities, which mean nothing any more. h2 reads
frames in Python, on the event loop, waits for all of a frame before it looks at its size, and copies what is left of a block of
headers for each of its fields.

Source: RFC 9113, sections 4.1, 6 and 10.5.
"""

from collections.abc import Callable

from h2.errors import ErrorCodes

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = 9
_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _GOAWAY, _CONTINUATION = 0, 1, 2, 3, 4, 7, 9

_LARGEST = 2**14
"""Bytes of a frame: what is allowed where nothing else is announced."""

_LARGEST_BLOCK = 2**17
"""Bytes of the frames that the headers of one call come in."""

_SMALL = 256
"""Bytes below which a frame of data carries as good as nothing."""

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
    """What has come on one connection. `leaving` says that the peer opens no more streams."""

    __slots__ = ("_block", "_dropping", "_empty", "_head", "_latest", "_left", "_preface", "_resets", "leaving")

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self.leaving = False
        self._empty = _Allowance("frames that carry nothing", clock)
        self._resets = _Allowance("resets", clock)
        self._head = b""
        self._preface = _PREFACE
        self._left = 0
        self._dropping = False
        self._latest = 0
        self._block = 0

    def answered(self) -> None:
        """The gateway has taken a call or told the peer something, which it may answer."""
        self._empty.earn(_PER_ANSWER)

    def made_reset(self) -> None:
        """The gateway had to reset a stream by what the peer did. Raises: Violation."""
        self._resets.spend(1)

    def passed(self, data: bytes) -> bytes:
        """The data without the frames that are taken out. Raises: Violation."""
        kept = []
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
            until = at + _HEAD - len(self._head)
            self._head += data[at:until]
            at = until
            if len(self._head) == _HEAD:
                head, self._head = self._head, b""
                self._begin(head)
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
        size, kind = int.from_bytes(head[:3]), head[3]
        if size > _LARGEST:
            raise Violation("a frame that is too large", ErrorCodes.FRAME_SIZE_ERROR)
        self._left = size
        self._dropping = kind in (_GOAWAY, _PRIORITY)
        self.leaving = self.leaving or kind == _GOAWAY
        if kind == _HEADERS:
            self._block = size
            # A call is paid for by the reset that ends it; trailers are no call.
            number = int.from_bytes(head[5:]) & 0x7FFFFFFF
            if number > self._latest:
                self._latest = number
            else:
                self._empty.spend(1)
        elif kind == _CONTINUATION:
            self._block += size
            if self._block > _LARGEST_BLOCK:
                raise Violation("headers that are too large")
        elif kind == _RST_STREAM:
            self._resets.spend(1)
        elif kind == _SETTINGS:
            self._empty.spend(_SETTINGS_COST)
        elif kind != _DATA or size < _SMALL:
            self._empty.spend(1)
