"""Turns of dead processes that cannot be ended: each is tried a few times and then put aside.

Law: a try of a turn that had begun is counted before it is made, so that a turn that kills its process counts; faults of the
database do not count.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from gateway.engine.turn_run import TurnRun
from gateway.foundation.clock import Clock
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import TRIES, CountTries, UnfinishedTurn
from gateway.ledger.port import Commits

log = structlog.get_logger("gateway.scheduling.quarantine")


def is_last(unfinished: UnfinishedTurn) -> bool:
    """No other try follows this one."""
    return unfinished.tries >= TRIES - 1


@dataclass(slots=True)
class Quarantine:
    """As one process knows it; the count is in the turn's row. `blocked`: turns of this round after a turn of their thread that
    was put aside. `probation`: seconds for which the process has to outlive a turn that it listens to again."""

    ledger: Commits
    clock: Clock
    probation: float
    blocked: frozenset[str] = frozenset()
    _logged: set[str] = field(default_factory=set)
    _on_trial: dict[str, tuple[int, float]] = field(default_factory=dict)

    def sift(self, found: Sequence[UnfinishedTurn]) -> list[UnfinishedTurn]:
        """The turns that are to be tried. `found` has the turns of a thread in their order."""
        aside = {unfinished.turn: unfinished for unfinished in found if unfinished.tries >= TRIES}
        for turn in aside.keys() - self._logged:
            unfinished = aside[turn]
            log.error("turn.put-aside", task=unfinished.task.id, turn=turn, context=unfinished.task.context_id)
        self._logged = set(aside)
        self.blocked = frozenset(_blocked(found))
        return [unfinished for unfinished in found if unfinished.turn not in aside]

    async def attempt(self, unfinished: UnfinishedTurn, settle: Callable[[], Awaitable[bool]]) -> None:
        """`settle` goes on with the turn or ends it; False: another process was faster. Raises: the errors of `settle`,
        LedgerUnavailable."""
        if unfinished.waits:
            await self._attempt_queued(unfinished, settle)
            return
        found, counted = unfinished.tries, unfinished.tries + 1
        try:
            await self.ledger.commit(CountTries(unfinished.turn, found, counted))
        except Conflict:
            return  # Another process is trying it.
        try:
            if await settle():
                return
        except (LedgerUnavailable, asyncio.CancelledError):
            self._count(unfinished.turn, counted, found)
            raise
        self._count(unfinished.turn, counted, found)

    async def _attempt_queued(self, unfinished: UnfinishedTurn, settle: Callable[[], Awaitable[bool]]) -> None:
        """The turn has not begun, and killed no process: there may be thousands of them, which are not written twice."""
        try:
            await settle()
        except LedgerUnavailable:
            raise
        except Exception:
            self._count(unfinished.turn, unfinished.tries, unfinished.tries + 1)
            raise

    def watch(self, unfinished: UnfinishedTurn, run: TurnRun) -> None:
        """The turn was taken over. An answer that is listened to again may be what killed its process."""
        if run.resume_point is not None and run.resume_point.pending is not None:
            self._on_trial[unfinished.turn] = unfinished.tries + 1, self.clock.monotonic() + self.probation

    def acquit(self, running: Collection[str]) -> None:
        """Clears the count of the turns that this process has outlived. Called with every renewal of the leases."""
        now = self.clock.monotonic()
        for turn, (tries, until) in list(self._on_trial.items()):
            if turn not in running or until <= now:
                del self._on_trial[turn]
            if turn in running and until <= now:
                self._count(turn, tries, 0)

    def _count(self, turn: str, before: int, tries: int) -> None:
        """Without waiting: if the count is not stored, the turn has one try less."""
        self.ledger.submit((CountTries(turn, before, tries),), lambda _: None)


def _blocked(found: Sequence[UnfinishedTurn]) -> Iterator[str]:
    blocked: set[str] = set()
    for unfinished in found:
        if unfinished.tries >= TRIES:
            blocked.add(unfinished.thread)
        elif unfinished.thread in blocked:
            yield unfinished.turn
