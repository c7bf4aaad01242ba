"""Lines of an audit log that prove that none of them was changed, left out or exchanged. Law: pure; what is signed are the
bytes of the line, so that nothing has to be written in a canonical form.

Each process has a chain of its own: `seq` counts from 0, `prev` is the hash of the chain's line before, and `hash` that of the
bytes of the line up to itself. Chains of several processes may share a file. Whether the end of a chain was cut off does not
show in the file.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

VERSION = 1
FIRST = "0" * 64
"""`prev` of the first line of a chain."""

_TAIL = re.compile(rb'^(\{.*),"hash":"([0-9a-f]{64})"\}$', re.DOTALL)


class Chain:
    """The chain of one process. With a `key` (bytes), only its owner can make lines that fit."""

    def __init__(self, process: str, key: bytes | None = None) -> None:
        self._process = process
        self._key = key
        self._seq = 0
        self._head = FIRST

    @property
    def head(self) -> str:
        """The hash of the latest line."""
        return self._head

    def line(self, at: str, facts: Mapping[str, Any]) -> bytes:
        """The next line, with its end. `facts` are JSON."""
        entry = {"v": VERSION, "at": at, "process": self._process, **facts, "seq": self._seq, "prev": self._head}
        begun = msgspec.json.encode(entry)[:-1]
        self._head = _digest(begun, self._key)
        self._seq += 1
        return b'%b,"hash":"%b"}\n' % (begun, self._head.encode())


class Fault(msgspec.Struct, frozen=True):
    """Something that is wrong with a line of a file, counted from 1."""

    line: int
    what: str


def verify(
    lines: Iterable[bytes], key: bytes | None = None, heads: dict[str, tuple[int, str]] | None = None
) -> Iterator[Fault]:
    """What is wrong with the lines of a file. `heads` has the number and hash of the latest line of each process; it is that
    of the files before, and is kept up to date."""
    known = {} if heads is None else heads
    for number, raw in enumerate(lines, 1):
        whole = raw.removesuffix(b"\n")
        found = _TAIL.match(whole)
        entry = _entry(whole) if found is not None and raw.endswith(b"\n") else None
        if found is None or entry is None:
            yield Fault(number, "is no whole line of an audit log")
            continue
        process, seq, prev = entry
        digest = found[2].decode()
        if not hmac.compare_digest(_digest(found[1], key), digest):
            yield Fault(number, "was changed, or made with another key")
        before = known.get(process)
        if before is None and (seq, prev) != (0, FIRST):
            yield Fault(number, f"is line {seq} of process {process}, of which nothing is before it")
        elif before is not None and seq != before[0] + 1:
            yield Fault(number, f"is line {seq} of process {process}, and stands behind its line {before[0]}")
        elif before is not None and prev != before[1]:
            yield Fault(number, f"does not fit to the line of process {process} before it")
        known[process] = (seq, digest)


def _entry(line: bytes) -> tuple[str, int, str] | None:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    match found:
        case {"v": 1, "process": str(process), "seq": int(seq), "prev": str(prev)}:
            return process, seq, prev
    return None


def _digest(data: bytes, key: bytes | None) -> str:
    return (hashlib.sha256(data) if key is None else hmac.new(key, data, hashlib.sha256)).hexdigest()
