"""The headers of a request. Law: what is wrong with the headers of one call ends that call; the connection, which a proxy may
share among many callers, ends for none but those that HPACK cannot read.

Source: RFC 9113, sections 8.2 and 8.3; RFC 7541; the description of gRPC over HTTP/2, "Requests".
"""

import re
from collections.abc import Iterable

import hpack

from gateway.a2a.errors import A2AError, InvalidRequest, PayloadTooLarge, echo
from gateway.http.reply import Headers

LARGEST = 2**16
"""Bytes of the headers of a call, each counted with 32 more, as peers are told."""

_LARGEST_READ = 2 * LARGEST
"""Up to which a list that is too large is read, so that its call can be answered."""

_ENTRY = 32

_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_NEEDED = (b":method", b":scheme", b":path")
_OF_CONNECTION = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
_name = re.compile(rb"[!-9;-@\[-~]+").fullmatch
_duration = re.compile(rb"[0-9]{1,8}[HMSmun]").fullmatch
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_broken = re.compile(rb"[\0\r\n]").search
_TYPES = frozenset({b"application/grpc", b"application/grpc+proto"})


LENGTH = b"content-length:"
"""A name that no header can have, in the place of `content-length`."""

_RENAMED = {b":status": b":response-status", b"content-length": LENGTH}
_ONCE = frozenset({LENGTH, b"grpc-timeout", b"content-type"})
_length = re.compile(rb"[0-9]{1,18}").fullmatch


class Decoder(hpack.Decoder):
    """Keeps from h2 what it would end the connection for.

    `content-length` is renamed, and looked at with the message. A `:status` is that of a response; it is renamed, so that it
    is refused as a name that is not known.
    """

    def __init__(self) -> None:
        super().__init__(_LARGEST_READ)

    def decode(self, data: bytes, raw: bool = False) -> Iterable[hpack.HeaderTuple]:
        return [
            hpack.HeaderTuple(_RENAMED[each[0]], each[1]) if each[0] in _RENAMED else each
            for each in super().decode(data, raw)
        ]


def no_call(headers: dict[bytes, bytes]) -> bytes | None:
    """The status of HTTP for a request that is no call of gRPC."""
    if headers.get(b":method") != b"POST":
        return b"405"
    kind = headers.get(b"content-type", b"")
    return None if kind in _TYPES or kind.partition(b";")[0].strip().lower() in _TYPES else b"415"


def fault(headers: Headers) -> A2AError | None:
    """Why a call with these headers cannot be served."""
    size, found, named = 0, set(), False
    for name, value in headers:
        size += len(name) + len(value) + _ENTRY
        if name[:1] == b":":
            if named or name in found or name not in _PSEUDO:
                return _refused(name, "stands where it must not")
            found.add(name)
        else:
            named = True
            if name in _ONCE:
                if name in found:
                    return _refused(name, "is given twice")
                found.add(name)
            if name == LENGTH:
                if not _length(value):
                    return _refused(name, "is not a number of bytes")
            elif not _name(name):
                return _refused(name, "is not the name of a header")
            if name in _OF_CONNECTION or (name == b"te" and value.strip().lower() != b"trailers"):
                return _refused(name, "is not one of HTTP/2")
        if _broken(value):
            return _refused(name, "has a value of more than one line")
    if size > LARGEST:
        return PayloadTooLarge(f"the metadata have more than {LARGEST} bytes")
    missing = next((name for name in _NEEDED if name not in found), None)
    return None if missing is None else _refused(missing, "is missing")


def timeout_fault(headers: dict[bytes, bytes]) -> A2AError | None:
    """Why the deadline of a call cannot be kept."""
    said = headers.get(b"grpc-timeout")
    if said is None or _duration(said):
        return None
    return _refused(b"grpc-timeout", "is not up to 8 digits and one of H, M, S, m, u and n")


def length(headers: dict[bytes, bytes]) -> int | None:
    """Bytes of the body, None where the caller does not say. The headers have no `fault`."""
    said = headers.get(LENGTH)
    return None if said is None else int(said)


def timeout(headers: dict[bytes, bytes]) -> float | None:
    """Seconds, None where none is given. The headers have no `timeout_fault`."""
    said = headers.get(b"grpc-timeout")
    return None if said is None else int(said[:-1]) * _UNITS[said[-1:]]


def _refused(name: bytes, why: str) -> A2AError:
    return InvalidRequest(f"the header {echo(name.rstrip(b':').decode('latin-1'))} {why}")
