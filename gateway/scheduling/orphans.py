"""The turns that nobody works on. Law: silence tells nothing of who could not speak: as long as somebody has locked the
ledger, no lease can be renewed, and all of them run out.

What dead processes left is ended many threads at a time. Law: the turns of one thread one after another, in their order;
what cannot be ended stops nobody else from being ended, and what may have killed its process is tried last and alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

import structlog

from gateway.engine.runtime import Runtime
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ledger.leases import Heartbeat, UnfinishedTurn
from gateway.scheduling.quarantine import Quarantine

log = structlog.get_logger("gateway.scheduling.orphans")

_ASKS_AGAIN = 0.2
_COMMITS = 20
"""Who waits for a locked database asks again every 0.1 s at least (SQLite's busy handler); when it is free, so many commits
of others may come before theirs, of which each takes as long as one of ours."""


class OrphanScan:
    """As one process finds them. `own`: its turns that it works on; `beat`: what it says itself; `patience`: seconds in
    which a commit is no late one."""

    def __init__(
        self,
        means: Runtime,
        quarantine: Quarantine,
        own: Callable[[], set[str]],
        beat: Callable[[], Heartbeat],
        patience: float,
    ) -> None:
        self._means = means
        self._quarantine = quarantine
        self._own = own
        self._beat = beat
        self._patience = patience

    async def to_try(self) -> list[UnfinishedTurn]:
        """The turns of a thread in their order; those of others only if these had the chance to say that they live.

        Raises: LedgerUnavailable.
        """
        clock, holder = self._means.clock, self._means.holder
        # Whose lease has run out by now. It may be set meanwhile, and tells nothing then.
        now = clock.now()
        left = self._quarantine.sift(await self._left(now))
        ours = [leftover for leftover in left if leftover.process == holder]
        if len(ours) == len(left):
            return left
        began = clock.monotonic()
        await self._means.ledger.commit(self._beat())
        took = clock.monotonic() - began
        if took > self._patience:
            log.warning("recovery.postponed", seconds=round(took, 1))
            return ours
        await self._means.pace.sleep(min(_ASKS_AGAIN + _COMMITS * took, self._patience))
        return self._quarantine.sift(await self._left(now))

    async def _left(self, now: int) -> list[UnfinishedTurn]:
        """A turn of this process that was at work then may have come to wait for its caller by now."""
        own = self._own()
        found = await self._means.ledger.unfinished_turns(now, self._means.holder)
        own |= self._own()
        return [leftover for leftover in found if leftover.turn not in own]


_AT_ONCE = 16
"""Threads. Their commits go together; more of them would only wait for each other's reads."""


async def settle_all(left: Sequence[UnfinishedTurn], settle: Callable[[UnfinishedTurn], Awaitable[None]]) -> None:
    """`left` has the turns of a thread side by side. Raises: LedgerUnavailable, and leaves the rest."""
    threads = [tuple(turns) for _, turns in groupby(left, key=lambda leftover: leftover.thread)]
    await _beside([turns for turns in threads if not _tries(turns)], _AT_ONCE, settle)
    # Who dies of one of them takes nobody along who has done nothing.
    await _beside(sorted(filter(_tries, threads), key=_tries), 1, settle)


def _tries(turns: Sequence[UnfinishedTurn]) -> int:
    return max(leftover.tries for leftover in turns)


async def _beside(
    threads: Sequence[Sequence[UnfinishedTurn]], at_once: int, settle: Callable[[UnfinishedTurn], Awaitable[None]]
) -> None:
    """Raises: LedgerUnavailable."""
    due = iter(threads)

    async def some() -> None:
        for turns in due:
            for leftover in turns:
                await _settle(leftover, settle)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(threads))):
                group.create_task(some())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _settle(leftover: UnfinishedTurn, settle: Callable[[UnfinishedTurn], Awaitable[None]]) -> None:
    try:
        await settle(leftover)
    except LedgerUnavailable:
        raise
    except CorruptRecord as error:
        log.error("turn.unreadable", task=leftover.task.id, turn=leftover.turn, error=str(error))
    except Exception:  # whatever it is, it is tried again in the next rounds or put aside, and the gateway goes on
        log.exception("turn.not-settled", task=leftover.task.id, turn=leftover.turn)
