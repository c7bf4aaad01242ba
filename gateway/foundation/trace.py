"""The place of work in a trace: its ids, as W3C Trace Context writes them, and the place that is current.

Law: ids are derived from ids of the ledger, so that any process can tell them again; a place that cannot be read is none.
Source: W3C Trace Context, level 2.
"""

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from hashlib import blake2b
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

SAMPLED = 1

_LEVELS = 3
"""The flags that are known: sampled, and that the trace id is random."""
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[\x20-\x7e\t]*")
_LONGEST_STATE = 512
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class TraceContext(msgspec.Struct, frozen=True):
    """A span as others refer to it: ids in hexadecimal, the flags, and the `tracestate` of its caller."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED
    state: str = ""

    @property
    def sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    @property
    def text(self) -> str:
        """As it is stored: `traceparent` and, behind a blank, `tracestate`."""
        return f"{self.traceparent} {self.state}" if self.state else self.traceparent

    def headers(self) -> Mapping[str, str]:
        if self.state:
            return {"traceparent": self.traceparent, "tracestate": self.state}
        return {"traceparent": self.traceparent}

    def beside(self, span_id: str, *, sampled: bool) -> "TraceContext":
        """Another span of the same trace."""
        return replace(self, span_id=span_id, flags=self.flags | SAMPLED if sampled else self.flags & ~SAMPLED)

    def child(self, *ids: object) -> "TraceContext":
        """A span of the same trace, with an id that is derived from these."""
        return replace(self, span_id=span_id(*ids))


def parse(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """None for what is no `traceparent`. A `tracestate` that cannot be passed on is left out."""
    found = _PARENT.fullmatch(traceparent)
    if found is None or (found[1] == "00" and found[5] is not None) or found[2] == _NO_TRACE or found[3] == _NO_SPAN:
        return None
    fits = len(tracestate) <= _LONGEST_STATE and _STATE.fullmatch(tracestate) is not None
    return TraceContext(found[2], found[3], int(found[4], 16) & _LEVELS, tracestate.strip(" \t") if fits else "")


def from_text(text: str | None) -> TraceContext | None:
    """The reverse of `TraceContext.text`."""
    if text is None:
        return None
    traceparent, _, state = text.partition(" ")
    return parse(traceparent, state)


def of_headers(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    """The caller's, of headers with names in lower case; None where there is none, or more than one."""
    parents: list[bytes] = []
    states: list[bytes] = []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    if len(parents) != 1:
        return None
    return parse(parents[0].strip(b" \t").decode("latin-1"), b",".join(states).decode("latin-1"))


def span_id(*ids: object) -> str:
    return _digest(8, ids)


def trace_id(*ids: object) -> str:
    return _digest(16, ids)


def _digest(size: int, ids: Iterable[object]) -> str:
    return blake2b("\n".join(map(str, ids)).encode(), digest_size=size).hexdigest()


# --- the current place

_current: ContextVar[TraceContext | None] = ContextVar("gateway.foundation.trace", default=None)


def current() -> TraceContext | None:
    """Where the work of this task, or thread, belongs; None where nothing is traced."""
    return _current.get()


def enter(place: TraceContext) -> Token[TraceContext | None]:
    """What this task does from now on belongs there, and so does what the tasks do that it begins."""
    return _current.set(place)


def leave(token: Token[TraceContext | None]) -> None:
    _current.reset(token)


def current_headers() -> Mapping[str, str]:
    """What a request carries that the current work makes; empty where nothing is traced."""
    place = _current.get()
    return _NO_HEADERS if place is None else place.headers()
