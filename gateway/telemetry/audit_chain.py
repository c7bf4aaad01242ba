"""Lines of an audit log that prove that none of them was changed, left out or exchanged. Law: pure; what is signed are the
bytes of the line, so that nothing has to be written in a canonical form.

`hash` is that of the bytes of the line up to itself, `prev` that of the line before, and `seq` counts the lines of a process
from 0. `v` says which line is the one before: 2, the line before in the file, whichever process wrote it; 1, that of the same
process, as on standard output, and in files of versions before. Whether the end of a file was cut off does not show in it.
"""

import codecs
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

FIRST = "0" * 64
"""`prev` of the first line of a chain."""

_OF_PROCESS, _OF_FILE = 1, 2
_HASHED = re.compile(rb'^(\{.*),"hash":"([0-9a-f]{64})"\}$', re.DOTALL)
_BEGINNING = b'{"v":'
_FIELDS = ("v", "at", "process")
_PART_OF_HASH = re.compile(r"[0-9a-f]{0,64}")
_PART_OF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?$")
_ENDS = [
    f"{end}{closed}"
    for end in ("", '"', '":0', ":0", "0", '"":0', "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l")
    for closed in ("}", "}}")
]
"""What may be missing of a JSON that was cut off: of a member or its value, and then of the objects around it."""


class Chain:
    """The lines of one process. With a `key` (bytes), only its owner can make lines that fit."""

    def __init__(self, process: str, key: bytes | None = None) -> None:
        self._process = process
        self._key = key
        self._seq = 0
        self._head = FIRST

    @property
    def head(self) -> str:
        """The hash of the latest line."""
        return self._head

    def line(self, at: str, facts: Mapping[str, Any], prev: str | None = None) -> bytes:
        """The next line, with its end. `facts` are JSON. `prev` is the hash at the end of the file; where it is not given, the
        line follows that of this process."""
        version, before = (_OF_PROCESS, self._head) if prev is None else (_OF_FILE, prev)
        entry = {"v": version, "at": at, "process": self._process, **facts, "seq": self._seq, "prev": before}
        begun = msgspec.json.encode(entry)[:-1]
        self._head = _digest(begun, self._key)
        self._seq += 1
        return b'%b,"hash":"%b"}\n' % (begun, self._head.encode())

    def repeat_number(self) -> None:
        """The latest line is in the file in part, which shows by itself: the next line has its number."""
        self._seq -= 1


def latest_hash(end: bytes) -> str | None:
    """The hash of the last whole line in the end of a file, of which the first line may be a part; None where there is none."""
    for raw in reversed(end.split(b"\n")):
        entry = _entry(raw)
        if entry is not None:
            return entry.digest
    return None


class Fault(msgspec.Struct, frozen=True):
    """Something that is wrong with a line of a file, counted from 1."""

    line: int
    what: str


class Verified(msgspec.Struct):
    """What the files of a log that were read so far have. `heads`: the number and hash of the latest line of each process.
    `head`: the hash of the latest line. `hashes`: those of all lines."""

    heads: dict[str, tuple[int, str]] = {}
    head: str = FIRST
    hashes: set[str] = set()


def verify(lines: Iterable[bytes], key: bytes | None = None, verified: Verified | None = None) -> Iterator[Fault]:
    """What is wrong with the lines of a file. `verified` is that of the files before, and is kept up to date."""
    known = Verified() if verified is None else verified
    begins = True
    for number, raw in enumerate(lines, 1):
        whole = raw.removesuffix(b"\n")
        entry = _entry(whole)
        if entry is None:
            torn = _begins_a_line(whole)
            yield Fault(
                number, "is torn: only its beginning was written" if torn else "is no whole line of an audit log"
            )
            continue
        if not hmac.compare_digest(_digest(entry.signed, key), entry.digest):
            yield Fault(number, "was changed, or made with another key")
        elif raw == whole:
            yield Fault(number, "is torn: it has no end of line")
        fault = _misplaced(entry, known, begins=begins)
        if fault is not None:
            yield Fault(number, fault)
        begins = False
        known.heads[entry.process] = (entry.seq, entry.digest)
        known.head = entry.digest
        known.hashes.add(entry.digest)


class _Entry(msgspec.Struct, frozen=True):
    version: int
    process: str
    seq: int
    prev: str
    signed: bytes
    digest: str


def _misplaced(entry: _Entry, known: Verified, *, begins: bool) -> str | None:
    """Why the line is not one that stands here. `begins`: it is the first of a file."""
    before = known.heads.get(entry.process)
    if entry.version == _OF_FILE:
        if not begins and entry.prev != known.head:
            return "does not go on from the line before it: lines between them are missing, or one of them is not in its place"
        if begins and entry.prev != FIRST and entry.prev not in known.hashes:
            return "goes on from a line that is in no file before: lines before it are missing"
    if before is None and entry.seq != 0:
        return f"is line {entry.seq} of process {entry.process}, of which nothing is before it"
    if before is not None and entry.seq != before[0] + 1:
        return f"is line {entry.seq} of process {entry.process}, and stands behind its line {before[0]}"
    if entry.version == _OF_PROCESS and entry.prev != (FIRST if before is None else before[1]):
        return f"does not fit to the line of process {entry.process} before it"
    return None


def _entry(line: bytes) -> _Entry | None:
    """None for what is no whole line. Without its end of line."""
    hashed = _HASHED.match(line)
    if hashed is None:
        return None
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    match found:
        case {"v": 1 | 2 as version, "process": str(process), "seq": int(seq), "prev": str(prev)}:
            return _Entry(version, process, seq, prev, hashed[1], hashed[2].decode())
    return None


def _begins_a_line(text: bytes) -> bool:
    """Whether this can be what is there of a line of which the end was not written, and no other line is on it."""
    if len(text) < len(_BEGINNING):
        return text != b"" and _BEGINNING.startswith(text)
    if text.rfind(_BEGINNING) != 0:
        return False
    try:
        begun = codecs.getincrementaldecoder("utf-8")().decode(text)
    except UnicodeDecodeError:
        return False
    begun = _PART_OF_ESCAPE.sub(r"\1", begun)
    return any(map(_has_fields_of_a_line, (f"{begun}{end}" for end in _ENDS)))


def _has_fields_of_a_line(text: str) -> bool:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    if not isinstance(found, dict) or found.get("v") not in (0, _OF_PROCESS, _OF_FILE):
        return False
    *whole, last = found
    expected = _FIELDS[len(whole)] if len(whole) < len(_FIELDS) else last
    return (
        all(name == field for name, field in zip(whole, _FIELDS, strict=False))
        and expected.startswith(last)
        and "hash" not in whole
        and (last != "hash" or _PART_OF_HASH.fullmatch(str(found[last])) is not None)
    )


def _digest(data: bytes, key: bytes | None) -> str:
    return (hashlib.sha256(data) if key is None else hmac.new(key, data, hashlib.sha256)).hexdigest()
