"""The frames of a connection before h2 reads them. Law: only the nine bytes in front of a frame are looked at.

h2 takes the announcement of a peer that it will open no more streams (GOAWAY) for the end of the connection, with all calls
on it (python-hyper/h2 issue 1181); so that frame is taken out. And it reads frames in Python, on the event loop, so what a peer
may ask of it without being told anything has a limit.

Source: RFC 9113, sections 4.1 and 6.
"""

_PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_HEAD = 9
_DATA, _HEADERS, _GOAWAY, _CONTINUATION = 0, 1, 7, 9

_FREE = 1000
_PER_WRITE = 10


class Flood(Exception):
    """The peer sends more frames that carry nothing than any client needs to."""


class Frames:
    """What has come on one connection. `leaving` says that the peer opens no more streams."""

    __slots__ = ("_dropping", "_free", "_head", "_left", "leaving")

    def __init__(self) -> None:
        self.leaving = False
        self._free = _FREE
        self._head = b""
        self._left = _PREFACE
        self._dropping = False

    def written(self) -> None:
        """The gateway has told the peer something, which it may answer with window updates and pings."""
        self._free += _PER_WRITE

    def passed(self, data: bytes) -> bytes:
        """The data without the frames that are taken out. Raises: Flood."""
        kept = []
        at, end = 0, len(data)
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

    def _begin(self, head: bytes) -> None:
        self._left, kind = int.from_bytes(head[:3]), head[3]
        self._dropping = kind == _GOAWAY
        self.leaving = self.leaving or self._dropping
        # A call is paid for by the reset that ends it, and its data by their window.
        if kind not in (_HEADERS, _CONTINUATION) and not (kind == _DATA and self._left):
            self._free -= 1
            if self._free < 0:
                raise Flood
