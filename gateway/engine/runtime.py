"""The services that all turns of a process share: ledger and its changes, clock, lease, waits, and a breaker for each
backend, whichever agents share it.

Law: every request of a turn passes its breaker and counts by what came back; a failure that says nothing of the backend counts
for nothing. Cancelling a call at its backend and deletions have limits of their own and do not pass.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import msgspec
import structlog

from gateway.core.agents import Agent
from gateway.engine.adapter_secrets import AdapterSecrets
from gateway.engine.changes import Changes
from gateway.engine.under_way import Begun, UnderWay
from gateway.foundation.clock import Clock
from gateway.foundation.retry import COOLDOWN, ORDINARY, Breaker, Outage
from gateway.ledger.calls import Prepare
from gateway.ledger.leases import Heartbeat
from gateway.ledger.port import Ledger
from gateway.ledger.threads import ThreadRecord
from gateway.ports.adapter import AdapterError, ErrorClass, Processed
from gateway.ports.capabilities import Backend
from gateway.ports.observer import SILENT, Observer

log = structlog.get_logger("gateway.engine.runtime")

_WARNED_THREADS = 1000
"""So many of the threads whose operator was warned are remembered."""


LEFT_ALONE = "It was not there several times in a row and is left alone for a while."
"""The hint of a service call that is not made."""


class BackendRequest(msgspec.Struct):
    """A request to an agent's backend, while it lasts. Entering it raises AdapterError where the breaker refuses."""

    _agent: Agent
    _breaker: Breaker | None
    _observer: Observer = SILENT
    _monotonic: Callable[[], float] = float
    _calls: UnderWay | None = None
    _call: Begun | None = None
    _began: float = 0.0
    _answered: bool = False
    _number: int = ORDINARY

    def __enter__(self) -> Self:
        breaker, self._began = self._breaker, self._monotonic()
        if breaker is not None:
            number = breaker.admit()
            if number is None:
                detail = "not asked: the backend was not there several times in a row"
                refused = AdapterError(ErrorClass.UNREACHABLE, detail, retry_after=_seconds(breaker))
                refused.hint = LEFT_ALONE
                raise refused
            self._number = number
            if number != ORDINARY:
                log.info("backend.tried-again", **self._names())
        if self._calls is not None:
            self._call = self._calls.begin(self._agent.name)
        return self

    @property
    def heard(self) -> Callable[[], None] | None:
        """To be called with everything that comes of an answer; None where nobody watches."""
        return None if self._call is None else self._call.heard

    def answered(self) -> None:
        """Some of an answer is there: whatever follows, there is a backend."""
        if not self._answered:
            self._answered = True
            self._observer.call_answered(self._agent.name, self._monotonic() - self._began)
            if self._breaker is not None and self._breaker.answered():
                log.info("backend.reachable", **self._names())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._calls is not None and self._call is not None:
            self._calls.end(self._call)
        self._observer.call_ended(self._agent.name, _outcome(error), self._monotonic() - self._began)
        if self._answered or self._breaker is None:
            return
        if error is None or (isinstance(error, AdapterError) and _is_answer(error)):
            self.answered()
        elif isinstance(error, AdapterError) and (error.backend_down or error.kind.meaning.backend_down):
            if self._breaker.failed(self._number):
                found = {"failure": error.kind, "detail": error.detail, "retry_in": COOLDOWN}
                log.warning("backend.unreachable", **self._names(), **found)
        else:
            self._breaker.left(self._number)

    def _names(self) -> dict[str, str | None]:
        backend = self._agent.backend
        return {"backend": backend.address if backend is not None else None, "agent": self._agent.name}


class Breakers:
    """They outlive the agents: a new configuration finds each backend's as it was."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._breakers: dict[Backend, Breaker] = {}

    def request(self, agent: Agent) -> BackendRequest:
        return BackendRequest(agent, self._of(agent))

    def observed(self, agent: Agent, observer: Observer, calls: UnderWay) -> BackendRequest:
        """The same for a try of a service call, which is one of `calls`, and of which the observer hears."""
        return BackendRequest(agent, self._of(agent), observer, self._clock.monotonic, calls)

    def reachable(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Each backend that was asked, by its address, and 0 where requests are refused, else 1."""
        refusing = {backend.address for backend, breaker in self._breakers.items() if breaker.refuses}
        for address in {backend.address for backend in self._breakers}:
            yield (address,), float(address not in refusing)

    def refuses(self, agent: Agent) -> bool:
        """A request would be refused now."""
        breaker = self._of(agent)
        return breaker is not None and breaker.refuses

    def outage(self, agent: Agent) -> Outage | None:
        """That of its backend; None where it counts as there."""
        breaker = self._of(agent)
        return None if breaker is None else breaker.outage

    def rest(self, agent: Agent, failure: AdapterError) -> int | None:
        """Seconds for which requests are refused; None where they are not, or where time does not mend the failure."""
        breaker, mended = self._of(agent), failure.kind.meaning.sent and not _is_answer(failure)
        return None if breaker is None or not breaker.refuses or not mended else _seconds(breaker)

    def _of(self, agent: Agent) -> Breaker | None:
        """The breaker of the agent's backend. It is None when the adapter names no backend, because the failures of
        such an agent say nothing about other agents."""
        backend = agent.backend
        if backend is None:
            return None
        breaker = self._breakers.get(backend)
        if breaker is None:
            breaker = self._breakers[backend] = Breaker(self._clock.monotonic)
        return breaker


def _is_answer(error: AdapterError) -> bool:
    """Whether the error counts as an answer of the backend. An interrupted call does not count, because a kept
    connection may be lost while the service works, and neither does one of which nothing was sent."""
    meaning = error.kind.meaning
    unheard = error.backend_down or meaning.backend_down or meaning.processed is Processed.MAYBE
    return meaning.sent and not unheard


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "completed"
    if isinstance(error, AdapterError):
        return error.kind
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "internal"


def _seconds(breaker: Breaker) -> int:
    """The remaining seconds, at least 1, because a trial may end soon."""
    return max(1, math.ceil(breaker.rest))


class Pace(msgspec.Struct, frozen=True):
    """How the time between two tries passes. `jitter` gives numbers from 0 to 1."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


@dataclass(slots=True)
class Runtime:
    """`holder` is the id of this process, `lease` the length of its leases in seconds. `calls` and `tools` are the service
    calls and the tool calls under way."""

    ledger: Ledger
    clock: Clock
    holder: str
    lease: float
    pace: Pace
    secrets: AdapterSecrets
    observer: Observer = SILENT
    breakers: Breakers = field(init=False)
    changes: Changes = field(init=False)
    calls: UnderWay = field(init=False)
    tools: UnderWay = field(init=False)
    _warned: deque[str] = field(default_factory=lambda: deque(maxlen=_WARNED_THREADS))

    def __post_init__(self) -> None:
        self.breakers = Breakers(self.clock)
        self.observer.watch(
            "backend_up", "0 where a backend is left alone after failures.", self.breakers.reachable, "backend"
        )
        self.changes = Changes(self.ledger)
        self.calls, self.tools = UnderWay(self.clock.monotonic), UnderWay(self.clock.monotonic)
        watch = self.observer.watch
        watch("service_calls_open", "Service calls under way.", self.calls.numbers, "agent")
        silence = "The longest time for which nothing has come of a service call under way."
        watch("service_call_silence_seconds", silence, self.calls.longest, "agent")
        watch("tool_calls_open", "Tool calls that run.", self.tools.numbers, "tool")
        watch("tool_call_oldest_seconds", "The longest time for which a tool call runs.", self.tools.longest, "tool")

    def lease_until(self) -> int:
        return self.clock.now() + int(self.lease * 1000)

    def heartbeat(self) -> Heartbeat:
        """Stored with a turn that has to wait: no other process takes it as long as this one lives."""
        return Heartbeat(self.holder, self.lease_until(), self.clock.now())

    def prepare(self, thread: ThreadRecord, turn: str, task: str, *, round_: int = 0, attempt: int = 0) -> Prepare:
        """C2. The first call of a turn takes the lease."""
        lease, now = (thread.id, thread.generation, self.holder, self.lease_until()), self.clock.now()
        return Prepare(*lease, turn, task, self.clock.row_id(), round_, attempt, thread.handle, now, event=None)

    def service_call(self, agent: Agent) -> BackendRequest:
        """A try of a service call to the backend of the agent."""
        return self.breakers.observed(agent, self.observer, self.calls)

    def first_warning(self, thread: str) -> bool:
        """True once for each thread: its operator is to be warned."""
        if thread in self._warned:
            return False
        self._warned.append(thread)
        return True
