"""Finds the turns whose process has died, and continues or ends them, many threads at a time. A turn that cannot be ended is
tried a few times and then put aside.

Law: the turns of one thread are recovered one after another, in their order. A turn that cannot be ended does not keep other
turns from their end; a turn that may have killed its process is tried last and alone. A process that could not renew its lease
because another process had locked the ledger is not regarded as dead. A try of a turn that had begun is counted before it is
made, so that a turn that kills its process counts; faults of the database do not count.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Protocol

import msgspec
import structlog

from gateway.core.agents import Agent
from gateway.core.failures import CONTEXT_STUCK
from gateway.engine.fanout import Fanout
from gateway.engine.runtime import Runtime
from gateway.engine.turn_context import TurnFailed
from gateway.engine.turn_run import ThreadQueue, TurnRun
from gateway.engine.turn_spans import tell_end
from gateway.foundation.clock import Clock
from gateway.foundation.clock_steps import ClockSteps
from gateway.foundation.shutdown import InFlight
from gateway.ledger.calls import RESTARTED
from gateway.ledger.errors import Conflict, CorruptRecord, LedgerUnavailable
from gateway.ledger.leases import TRIES, CountTries, TakeTriesBack, UnfinishedTurn
from gateway.ledger.port import Commits
from gateway.ledger.threads import ThreadRecord
from gateway.scheduling.settle import settle
from gateway.scheduling.takeover import take_over_turn

log = structlog.get_logger("gateway.scheduling.orphans")

_BUSY_INTERVAL = 0.2
_COMMITS = 20
"""A process that waits for a locked database tries again every 0.1 s at least (SQLite's busy handler); when the database is
free, so many commits of others may precede its own, each of which takes as long as a commit of this process."""

_AT_ONCE = 16
"""Threads. Their commits go together; more of them would only wait for each other's reads."""


def is_last(unfinished: UnfinishedTurn) -> bool:
    """No other try follows this one."""
    return unfinished.tries >= TRIES - 1


@dataclass(slots=True)
class Quarantine:
    """The turns that were put aside, as far as one process knows them; the count is in the turn's row. `blocked` are
    turns of this round that follow, in their thread, a turn that was put aside. `probation` is the number of seconds
    that the process has to survive a turn whose response it reads again."""

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
        """Makes one attempt with the turn. `settle` continues the turn or ends it, and returns False when another
        process was faster. Raises: the errors of `settle`, LedgerUnavailable."""
        found, counted = unfinished.tries, unfinished.tries + 1
        if unfinished.waits:
            # The turn killed no process: there may be thousands of such turns, which are not written twice.
            try:
                await settle()
            except LedgerUnavailable:
                raise
            except Exception:
                # Does not wait for the commit: if the count is not stored, the turn has one try more.
                self.ledger.submit((CountTries(unfinished.turn, found, counted),), lambda _: None)
                raise
            return
        try:
            await self.ledger.commit(CountTries(unfinished.turn, found, counted))
        except Conflict:
            return  # Another process is trying it.
        try:
            if await settle():
                return
        except (LedgerUnavailable, asyncio.CancelledError):
            self._take_back(unfinished.turn, 1)
            raise
        self._take_back(unfinished.turn, 1)

    def watch(self, unfinished: UnfinishedTurn, run: TurnRun) -> None:
        """The turn was taken over. An answer that is listened to again may be what killed its process."""
        if run.resume_point is not None and run.resume_point.listens:
            self._on_trial[unfinished.turn] = unfinished.tries + 1, self.clock.monotonic() + self.probation

    def acquit(self, running: Collection[str]) -> None:
        """Clears the count of the turns that this process has outlived. Called with every renewal of the leases."""
        now = self.clock.monotonic()
        for turn, (tries, until) in list(self._on_trial.items()):
            if turn not in running or until <= now:
                del self._on_trial[turn]
            if turn in running and until <= now:
                self._take_back(turn, tries)

    def _take_back(self, turn: str, tries: int) -> None:
        """Another process may have counted a try of its own meanwhile, which stays. Does not wait for the commit: if it is not
        stored, the turn has fewer tries left."""
        self.ledger.submit((TakeTriesBack(turn, tries),), lambda _: None)


def _blocked(found: Sequence[UnfinishedTurn]) -> Iterator[str]:
    blocked: set[str] = set()
    for unfinished in found:
        if unfinished.tries >= TRIES:
            blocked.add(unfinished.thread)
        elif unfinished.thread in blocked:
            yield unfinished.turn


class Host(Protocol):
    """The process, as recovery uses it."""

    retired: bool
    in_flight: InFlight
    find_agent: Callable[[str], Agent | None]

    def own_turns(self) -> set[str]: ...

    def owns(self, unfinished: UnfinishedTurn) -> bool: ...

    def adopt(self, run: TurnRun, thread: ThreadRecord, queues: dict[str, ThreadQueue], *, cancel: bool) -> None: ...


class OrphanRecovery(msgspec.Struct):
    """One loop for each process. `interval` is in seconds; a commit that takes longer is late."""

    runtime: Runtime
    fanout: Fanout
    quarantine: Quarantine
    host: Host
    interval: float

    async def run(self, recovered: asyncio.Event, serving: asyncio.Event) -> None:
        """Never returns; `recovered` is set after the first round. Raises: LedgerUnavailable before `serving`."""
        steps = ClockSteps(self.runtime.clock, self.interval)
        while True:
            try:
                if not (steps.recent() or self.host.retired):
                    await settle_all(await self._found(), partial(self._settle, {}))
            except LedgerUnavailable as error:
                if not serving.is_set():
                    raise
                log.warning("upkeep.skipped", error=str(error))
            recovered.set()
            await asyncio.sleep(self.interval)

    # --- which turns

    async def _found(self) -> list[UnfinishedTurn]:
        """The turns of a thread in their order; turns of other processes only if these had the chance to show that they live.

        Raises: LedgerUnavailable.
        """
        clock, holder = self.runtime.clock, self.runtime.holder
        # These leases have expired. If the clock was set in the meantime, it says nothing about them.
        now = clock.now()
        found = self.quarantine.sift(await self._unfinished(now))
        ours = [unfinished for unfinished in found if unfinished.process == holder]
        if len(ours) == len(found):
            return found
        began = clock.monotonic()
        await self.runtime.ledger.commit(self.runtime.heartbeat())
        took = clock.monotonic() - began
        if took > self.interval:
            log.warning("recovery.postponed", seconds=round(took, 1))
            return ours
        await self.runtime.pace.sleep(min(_BUSY_INTERVAL + _COMMITS * took, self.interval))
        return self.quarantine.sift(await self._unfinished(now))

    async def _unfinished(self, now: int) -> list[UnfinishedTurn]:
        own = self.host.own_turns()
        found = await self.runtime.ledger.unfinished_turns(now, self.runtime.holder)
        # A turn that ran in this process before the read may have been paused since then.
        own |= self.host.own_turns()
        return [unfinished for unfinished in found if unfinished.turn not in own]

    # --- what becomes of one

    async def _settle(self, queues: dict[str, ThreadQueue], unfinished: UnfinishedTurn) -> None:
        """Settles one turn. `queues` are the queues of this round, by thread. Raises: LedgerUnavailable,
        CorruptRecord."""
        if not (self.host.retired or self.host.owns(unfinished)):
            with self.host.in_flight.now:
                await self.quarantine.attempt(unfinished, partial(self._try, queues, unfinished))

    async def _try(self, queues: dict[str, ThreadQueue], unfinished: UnfinishedTurn) -> bool:
        """Continues the turn in this process, or ends it. Returns False when another process was faster. Raises:
        LedgerUnavailable, CorruptRecord."""
        agent, failure = self.host.find_agent(unfinished.task.agent), RESTARTED
        blocked, last = unfinished.turn in self.quarantine.blocked, is_last(unfinished)
        try:
            taken = None if blocked or last else await take_over_turn(unfinished, agent, self.runtime, self.fanout)
        except TurnFailed as error:
            log.warning("turn.not-taken-over", task=unfinished.task.id, failure=error.failure, detail=error.detail)
            taken, failure = None, error.failure
        except CorruptRecord as error:
            log.error("turn.unreadable", task=unfinished.task.id, turn=unfinished.turn, error=str(error))
            taken = None
        if taken is not None:
            self.quarantine.watch(unfinished, taken[0])
            self.host.adopt(*taken, queues, cancel=unfinished.cancel_asked)
            return True
        policies, clock = None if agent is None else agent.policies, self.runtime.clock
        failure = CONTEXT_STUCK if blocked else failure
        if not await settle(unfinished, self.runtime.ledger, self.fanout, clock, policies, failure, bare=last):
            return False
        await tell_end(self.runtime, unfinished.turn, unfinished.task, agent)
        return True


async def settle_all(found: Sequence[UnfinishedTurn], settle: Callable[[UnfinishedTurn], Awaitable[None]]) -> None:
    """`found` has the turns of a thread side by side. Raises: LedgerUnavailable, and leaves the rest."""
    threads = [tuple(turns) for _, turns in groupby(found, key=lambda unfinished: unfinished.thread)]
    await _settle_threads([turns for turns in threads if not _tries(turns)], _AT_ONCE, settle)
    # A process that dies of one of them takes no innocent turn along.
    await _settle_threads(sorted(filter(_tries, threads), key=_tries), 1, settle)


def _tries(turns: Sequence[UnfinishedTurn]) -> int:
    return max(unfinished.tries for unfinished in turns)


async def _settle_threads(
    threads: Sequence[Sequence[UnfinishedTurn]], at_once: int, settle: Callable[[UnfinishedTurn], Awaitable[None]]
) -> None:
    """Raises: LedgerUnavailable."""
    due = iter(threads)

    async def worker() -> None:
        for turns in due:
            for unfinished in turns:
                try:
                    await settle(unfinished)
                except LedgerUnavailable:
                    raise
                except CorruptRecord as error:
                    log.error("turn.unreadable", task=unfinished.task.id, turn=unfinished.turn, error=str(error))
                except Exception:  # the turn is tried again in the next rounds or put aside, and the gateway continues
                    log.exception("turn.not-settled", task=unfinished.task.id, turn=unfinished.turn)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(threads))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
