"""The breakers of a process, one for each backend, whichever agents share it. Law: every request that a turn makes passes by
here; what it counts for is judged by what came back, and what says nothing of the backend counts for nothing.

Not through here goes what has its own measure: to end a call that nobody wants any more, and to delete.
"""

import math
from types import TracebackType
from typing import Self

import structlog

from gateway.abilities import Backend
from gateway.agents import Agent
from gateway.breaker import COOLDOWN, ORDINARY, Breaker
from gateway.clock import Clock
from gateway.ports import AdapterError, ErrorClass

log = structlog.get_logger("gateway.breakers")

_NOBODY_THERE = frozenset({ErrorClass.UNREACHABLE, ErrorClass.TIMED_OUT})
_SAYS_NOTHING = frozenset({ErrorClass.INTERRUPTED, ErrorClass.UNKNOWN})
"""A connection that was kept may be gone while the service is there."""


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
        elif isinstance(error, AdapterError) and (error.down or error.kind in _NOBODY_THERE):
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
    return not (error.down or error.kind in _NOBODY_THERE or error.kind in _SAYS_NOTHING)


def _seconds(breaker: Breaker) -> int:
    """While somebody asks it, it may be over soon."""
    return max(1, math.ceil(breaker.rest))
