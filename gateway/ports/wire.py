"""What goes over the wire to backends and tools: told to a recorder, or answered by a player from what one has recorded.

Law: a client takes its tap when it is made. Without one it does exactly what it did, and asks nobody.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from gateway.ports.adapter import AdapterError, ErrorClass

EVENTS: Mapping[str, str] = {"content-type": "text/event-stream"}
"""The headers of an answer that is a stream of events."""


class Occasion(msgspec.Struct, omit_defaults=True):
    """What an exchange belongs to: the names and ids of the ledger. `call` is the service call, which changes as a turn goes
    on; of a tool, the one that asked for it, and `tool` the tool call. Empty where there is none: an agent's card is fetched
    for no task."""

    agent: str = ""
    context: str = ""
    task: str = ""
    turn: str = ""
    call: str = ""
    tool: str = ""


occasion: ContextVar[Occasion | None] = ContextVar("occasion", default=None)
"""What the running turn is at. Set once a turn. It has nothing of the turn but names: a connection to a backend keeps the value
of the turn that opened it for as long as it is open."""


class Request(msgspec.Struct, frozen=True):
    """`url` is the whole address; that of a tool or a function begins with `tool:` or `agent:`. `apart`: it is the same for all
    conversations, and belongs to none. `tool` is the id of the tool call."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    apart: bool = False
    tool: str = ""


class End(StrEnum):
    """How an exchange ended. STALE: on a kept connection, before any byte of the answer. CANCELLED: who asked has left.
    LOST: the recorder could not follow."""

    COMPLETE = "complete"
    CUT = "cut"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    STALE = "stale"
    BROKEN = "broken"
    LOST = "lost"


class Taking(ABC):
    """One exchange that is being recorded."""

    @abstractmethod
    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer begins."""

    @abstractmethod
    def received(self, piece: bytes) -> None:
        """What one read of the answer gave."""

    @abstractmethod
    def ended(self, how: End, why: str = "") -> None:
        """Only the first counts."""


class Answer(msgspec.Struct, frozen=True):
    """A recorded answer. `status` is None where there was none. `at` and the times of `reads` are seconds since the request, as
    they are to pass now."""

    status: int | None
    headers: Mapping[str, str]
    at: float
    reads: tuple[tuple[float, bytes], ...]
    ended: float
    how: End


class Recorder(ABC):
    """Records the exchanges of one client. Its calls return at once and raise nothing."""

    @abstractmethod
    def begin(self, request: Request) -> Taking: ...


class Player(ABC):
    """Answers the requests of one client."""

    @abstractmethod
    def answer(self, request: Request) -> Answer:
        """Raises: ReplayMissing for a request that was never recorded."""


Tap: TypeAlias = Recorder | Player


def occasion_of(request: Request, agent: str) -> Occasion:
    """What a request belongs to. `agent` makes it where no turn does."""
    at = None if request.apart else occasion.get()
    return Occasion(agent) if at is None else replace(at)


class ReplayMissing(AdapterError):
    """No recording has an answer to the request. `hint` says which one comes nearest."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(ErrorClass.REPLAY_MISSING, detail)
        self.hint = hint


class Offer:
    """A tap for the client that is made in the block of `offered`. `taken`: it was one that takes taps."""

    def __init__(self, tap: Tap | None) -> None:
        self._tap = tap
        self.taken = False

    def take(self) -> Tap | None:
        self.taken = True
        return self._tap


_offer: ContextVar[Offer | None] = ContextVar("offer", default=None)


@contextmanager
def offered(tap: Tap | None) -> Iterator[Offer]:
    """Clients that are made in the block take this tap; with None they take none, whatever is offered around it."""
    offer = Offer(tap)
    token = _offer.set(offer)
    try:
        yield offer
    finally:
        _offer.reset(token)


def take_tap() -> Tap | None:
    """The tap of a client that is being made."""
    offer = _offer.get()
    return None if offer is None else offer.take()
