"""The breakers of a process, one for each backend, whichever agents share it. Law: every request that a turn makes passes by
here; what it counts for is judged by what came back, and what says nothing of the backend counts for nothing.

Not through here goes what has its own measure: to end a call that nobody wants any more, and to delete.

What every turn of a process works with: the ledger, the clock, the lease, how time passes, how a backend is called.
"""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import structlog

from gateway.core.agents import Agent
from gateway.foundation.breaker import COOLDOWN, ORDINARY, Breaker
from gateway.foundation.clock import Clock
from gateway.ledger.calls import Prepare
from gateway.ledger.port import Ledger
from gateway.ledger.threads import ThreadRecord
from gateway.ports.adapter import Adapter, AdapterError, AdapterEvent, ErrorClass, Processed, ServiceRequest
from gateway.ports.capabilities import Backend

log = structlog.get_logger("gateway.engine.runtime")


class Asking:
    """A request to an agent's backend, for as long as it lasts. Entering it raises AdapterError where it must not be made."""

    __slots__ = ("_agent", "_breaker", "_heard", "_number")

    def __init__(self, agent: Agent, breaker: Breaker | None) -> None:
        self._agent = agent
        self._breaker = breaker
        self._heard = False
        self._number = ORDINARY

    def __enter__(self) -> Self:
        breaker = self._breaker
        if breaker is not None:
            number = breaker.admit()
            if number is None:
                detail = "not asked: the backend was not there several times in a row"
                raise AdapterError(ErrorClass.UNREACHABLE, detail, retry_after=_seconds(breaker))
            self._number = number
            if number != ORDINARY:
                self._tell("backend.tried-again")
        return self

    def heard(self) -> None:
        """Some of an answer is there: whatever comes behind it, there is a backend."""
        if not self._heard:
            self._heard = True
            if self._breaker is not None and self._breaker.answered():
                self._tell("backend.reachable")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._heard or self._breaker is None:
            return
        if error is None or (isinstance(error, AdapterError) and _is_answer(error)):
            self.heard()
        elif isinstance(error, AdapterError) and (error.backend_down or error.kind.meaning.backend_down):
            if self._breaker.failed(self._number):
                found = {"failure": error.kind, "detail": error.detail, "retry_in": COOLDOWN}
                log.warning("backend.unreachable", **self._who(), **found)
        else:
            self._breaker.left(self._number)

    def _tell(self, event: str) -> None:
        log.info(event, **self._who())

    def _who(self) -> dict[str, str | None]:
        backend = self._agent.backend
        return {"backend": backend.address if backend is not None else None, "agent": self._agent.name}


class Breakers:
    """They outlive the agents: one that is configured anew finds its backend's as it was."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._breakers: dict[Backend, Breaker] = {}

    def asking(self, agent: Agent) -> Asking:
        return Asking(agent, self._of(agent))

    def refuses(self, agent: Agent) -> bool:
        """There is no sense in a request now."""
        breaker = self._of(agent)
        return breaker is not None and breaker.refuses

    def rest(self, agent: Agent, failure: AdapterError) -> int | None:
        """Seconds for which it is so; None where it is not, or where time does not mend the failure."""
        breaker = self._of(agent)
        return _seconds(breaker) if breaker is not None and breaker.refuses and not _is_answer(failure) else None

    def _of(self, agent: Agent) -> Breaker | None:
        """None for an agent whose adapter names no backend: its failures say nothing of others."""
        backend = agent.backend
        if backend is None:
            return None
        breaker = self._breakers.get(backend)
        if breaker is None:
            breaker = self._breakers[backend] = Breaker(self._clock.monotonic)
        return breaker


def _is_answer(error: AdapterError) -> bool:
    """Not an interrupted call: a connection that was kept may be gone while the service is there."""
    meaning = error.kind.meaning
    return not (error.backend_down or meaning.backend_down or meaning.processed is Processed.MAYBE)


def _seconds(breaker: Breaker) -> int:
    """While somebody asks it, it may be over soon."""
    return max(1, math.ceil(breaker.rest))


_WARNED = 1000
"""Threads of which is remembered that their operator was warned."""

Call = Callable[[Adapter, ServiceRequest], AsyncGenerator[AdapterEvent, None]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How the time between two tries passes. `jitter` gives numbers from 0 to 1."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


@dataclass(slots=True)
class Runtime:
    """`holder` is the id of this process, `lease` the length of its leases in seconds."""

    ledger: Ledger
    clock: Clock
    holder: str
    lease: float
    pace: Pace
    call: Call = lambda adapter, request: adapter.call(request)
    breakers: Breakers = field(init=False)
    _warned: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.breakers = Breakers(self.clock)

    def lease_until(self) -> int:
        return self.clock.now() + int(self.lease * 1000)

    def prepare(self, thread: ThreadRecord, turn: str, task: str, *, round_: int = 0, attempt: int = 0) -> Prepare:
        """C2. The first call of a turn takes the lease."""
        return Prepare(
            thread=thread.id,
            generation=thread.generation,
            holder=self.holder,
            lease_until=self.lease_until(),
            turn=turn,
            task=task,
            service_call=self.clock.row_id(),
            round=round_,
            attempt=attempt,
            handle_in=thread.handle,
            now=self.clock.now(),
            event=None,
        )

    def first_warning(self, thread: str) -> bool:
        """The operator is to be warned of this thread, and has not been before."""
        if thread in self._warned:
            return False
        self._warned = {thread: None, **dict(list(self._warned.items())[: _WARNED - 1])}
        return True
