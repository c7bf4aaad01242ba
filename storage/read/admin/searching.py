"""How a search goes back through rows: the size of its chunks, and when it stops. Law: it stops behind a chunk, and can go on
from there."""

import time

import msgspec

LAST = "\U0010ffff"
"""An id behind all ids."""

_FIRST, _LEAST, _MOST = 64, 16, 2048
"""Rows of a chunk."""

_QUICK, _SLOW = 0.02, 0.08
"""Seconds. A quick chunk is followed by one twice as large, a slow one by one of a quarter: messages may have 8 MiB."""


def next_chunk(chunk: int, took: float) -> int:
    if took < _QUICK:
        return min(chunk * 2, _MOST)
    return max(chunk // 4, _LEAST) if took > _SLOW else chunk


class Pace(msgspec.Struct):
    """The chunks of one search, which lasts `patience` seconds and its last chunk."""

    patience: float
    chunk: int = _FIRST
    _began: float = msgspec.field(default_factory=time.monotonic)
    _looked: float = msgspec.field(default_factory=time.monotonic)

    def looked(self) -> bool:
        """A chunk was looked through. Returns whether there is time for another one."""
        now = time.monotonic()
        self.chunk, self._looked = next_chunk(self.chunk, now - self._looked), now
        return now - self._began < self.patience
