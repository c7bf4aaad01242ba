"""What dead processes left is ended many threads at a time. Law: the turns of one thread one after another, in their order;
what cannot be ended stops nobody else from being ended, and what may have killed its process is tried last and alone."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby

import structlog

from gateway.commits.failures import CorruptRecord, LedgerUnavailable
from gateway.commits.leases import UnfinishedTurn

log = structlog.get_logger("gateway.settling")

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
