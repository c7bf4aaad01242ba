"""Turns of dead processes that nobody gets to an end: each is tried a few times and then put aside. Law: a try of one that
had begun is counted before it is made, so that what kills its process counts; what is the database's fault does not.

Source: reliability, K12.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

import structlog

from gateway.engine.turn_run import TurnRun
from gateway.foundation.clock import Clock
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import TRIES, CountTries, UnfinishedTurn
from gateway.ledger.port import Commits

log = structlog.get_logger("gateway.scheduling.quarantine")


def is_last(leftover: UnfinishedTurn) -> bool:
    """Nobody tries it again behind this."""
    return leftover.tries >= TRIES - 1


class Quarantine:
    """What one process knows of it; the count is the turn's own. `behind`: turns of this round that come behind one that is
    put aside, on its thread. `probation`: seconds which the process has to outlive a turn that it listens to again."""

    def __init__(self, ledger: Commits, clock: Clock, probation: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._probation = probation
        self._told: set[str] = set()
        self._on_trial: dict[str, tuple[int, float]] = {}
        self.behind: frozenset[str] = frozenset()

    def sift(self, left: Sequence[UnfinishedTurn]) -> list[UnfinishedTurn]:
        """Those that are to be tried. `left` has the turns of a thread in their order."""
        aside = {leftover.turn: leftover for leftover in left if leftover.tries >= TRIES}
        for turn in aside.keys() - self._told:
            leftover = aside[turn]
            log.error("turn.put-aside", task=leftover.task.id, turn=turn, context=leftover.task.context_id)
        self._told = set(aside)
        self.behind = frozenset(_behind(left))
        return [leftover for leftover in left if leftover.turn not in aside]

    async def attempt(self, leftover: UnfinishedTurn, settle: Callable[[], Awaitable[bool]]) -> None:
        """`settle` goes on with it or ends it; False: another was faster. Raises: what it raises, LedgerUnavailable."""
        if leftover.waits:
            await self._attempt_fresh(leftover, settle)
            return
        found, counted = leftover.tries, leftover.tries + 1
        try:
            await self._ledger.commit(CountTries(leftover.turn, found, counted))
        except Conflict:
            return  # Somebody else is trying it.
        try:
            if await settle():
                return
        except (LedgerUnavailable, asyncio.CancelledError):
            self._count(leftover.turn, counted, found)
            raise
        self._count(leftover.turn, counted, found)

    async def _attempt_fresh(self, leftover: UnfinishedTurn, settle: Callable[[], Awaitable[bool]]) -> None:
        """Nothing has come of it that could kill a process: there may be thousands, and they are not written twice."""
        try:
            await settle()
        except LedgerUnavailable:
            raise
        except Exception:
            self._count(leftover.turn, leftover.tries, leftover.tries + 1)
            raise

    def goes_on(self, leftover: UnfinishedTurn, work: TurnRun) -> None:
        """It was taken over. An answer that is listened to again may be what killed its process."""
        if work.rejoined is not None and work.rejoined.pending is not None:
            self._on_trial[leftover.turn] = leftover.tries + 1, self._clock.monotonic() + self._probation

    def acquit(self, running: Collection[str]) -> None:
        """Those that this process has outlived so far. Called every now and then."""
        now = self._clock.monotonic()
        for turn, (tries, until) in list(self._on_trial.items()):
            if turn not in running or until <= now:
                del self._on_trial[turn]
            if turn in running and until <= now:
                self._count(turn, tries, 0)

    def _count(self, turn: str, before: int, tries: int) -> None:
        """Nobody waits for it: where it is not stored the turn has one try less."""
        self._ledger.submit((CountTries(turn, before, tries),), lambda _: None)


def _behind(left: Sequence[UnfinishedTurn]) -> Iterator[str]:
    blocked: set[str] = set()
    for leftover in left:
        if leftover.tries >= TRIES:
            blocked.add(leftover.thread)
        elif leftover.thread in blocked:
            yield leftover.turn
