"""Random ids. Law: used through `Clock`, which is injected wherever a decision needs an id."""

import os
import time
from collections import deque

_CHUNK = 16
_ALIKE = 2
_AT_ONCE = 1024 * _CHUNK
_chunks: deque[bytes] = deque()
# A forked child would give out the same ids as its parent.
os.register_at_fork(after_in_child=_chunks.clear)


def _random() -> bytes:
    """16 random bytes. The system is asked for many at once: each request releases the interpreter lock, and waiting for the
    lock again cost an eighth of a turn.

    The chunks of one request begin with the same two bytes, so that what is made together stands together in every index.
    """
    try:
        return _chunks.popleft()
    except IndexError:
        fresh = os.urandom(_AT_ONCE)
        alike = fresh[:_ALIKE]
        _chunks.extend(alike + fresh[at + _ALIKE : at + _CHUNK] for at in range(_CHUNK, _AT_ONCE, _CHUNK))
        return fresh[:_CHUNK]


def uuid4() -> str:
    """Source: RFC 9562, section 5.4. Formatted here, because `uuid.UUID` takes four times as long, ten times a turn."""
    digits = _random().hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def row_id() -> str:
    """For rows that callers never see: it begins with the time, so that new rows stand together on disk."""
    return f"{time.time_ns():016x}{_random()[8:].hex()}"
