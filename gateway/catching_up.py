"""Looks up, before the next request, what became of a service call whose end nobody heard. Law: it asks the backend and
changes nothing there; what follows is stored together with the next request, or not at all.

It is left to the next request, and not done when a crash is recovered from: who recovers knows no adapters, a conversation
that nobody goes on with costs no reads, and a backend that is away does not hold up the start.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from gateway import ownership, reconciling
from gateway.abilities import Fetching, Tail, TailListing
from gateway.agents import Agent
from gateway.commits.calls import Complete
from gateway.commits.points import CommitPoint
from gateway.commits.threads import Synced, ThreadRecord
from gateway.items import HandleKind, Item
from gateway.means import Means
from gateway.ports import AdapterError, ErrorClass, ServiceRequest
from gateway.projection import project
from gateway.reconciling import Unheard
from gateway.retrying import wait_before

log = structlog.get_logger("gateway.catching-up")

_PASSING = frozenset(
    {
        ErrorClass.UNREACHABLE,
        ErrorClass.RATE_LIMITED,
        ErrorClass.LOCKED,
        ErrorClass.TIMED_OUT,
        ErrorClass.INTERRUPTED,
        ErrorClass.BACKEND_FAILED,
        ErrorClass.UNKNOWN,
    }
)
"""Asking again may help: to ask changes nothing."""

_HOPELESS = frozenset(
    {
        ErrorClass.REJECTED,
        ErrorClass.CONTRACT_BROKEN,
        ErrorClass.HANDLE_NOT_FOUND,
        ErrorClass.HANDLE_EXPIRED,
    }
)
"""This backend will never tell; the request itself finds out what else that means."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """`points` make the thread one that can go on. `doubtful`: the turn of a call of which nothing was found, and which may
    still be at work."""

    points: tuple[CommitPoint, ...]
    doubtful: str | None = None


async def catch_up(
    means: Means,
    agent: Agent,
    thread: ThreadRecord,
    asking: Callable[[str | None, tuple[Item, ...]], ServiceRequest],
) -> CaughtUp:
    """What an unsynced thread needs. `asking` makes a request on a handle, for the adapter to compare with.

    Raises: AdapterError when the backend could not be asked; the thread stays as it is. LedgerUnavailable, CorruptRecord.
    """
    ledger = means.ledger
    call = await ledger.unheard(thread.id)
    if call is None:
        return CaughtUp((Synced(thread.id, thread.generation),))
    records = await ledger.history(thread.id, unsent_only=True)
    # What the call carried has been due ever since.
    owned = ownership.of_thread(thread, agent.adapter.ownership)
    unheard = Unheard(agent, thread, call, owned, project(owned, records, call.turn))
    static = thread.handle_kind is HandleKind.STATIC
    if call.displaced and not static:
        return CaughtUp(reconciling.given_up(unheard, "left-out", means.clock))
    if static:
        points = await _by_tail(unheard, asking(thread.handle or call.pending, unheard.view.items), means)
    else:
        points = await _by_fetching(unheard, means)
    adopted = any(isinstance(point, Complete) for point in points)
    log.info("thread.caught-up", agent=agent.name, thread=thread.id, turn=call.turn, adopted=adopted)
    return CaughtUp(points, call.turn if static and not adopted and thread.handle is not None else None)


async def _by_fetching(unheard: Unheard, means: Means) -> tuple[CommitPoint, ...]:
    adapter, pending = unheard.agent.adapter, unheard.call.pending
    if pending is None or not isinstance(adapter, Fetching):
        return reconciling.not_told(unheard, means.clock)
    found = await _asked(lambda: adapter.fetch(pending), unheard, means)
    if found is None:
        return reconciling.not_told(unheard, means.clock)
    return reconciling.fetched(unheard, found, means.clock)


async def _by_tail(unheard: Unheard, request: ServiceRequest, means: Means) -> tuple[CommitPoint, ...]:
    adapter, thread = unheard.agent.adapter, unheard.thread
    if request.handle is None or not isinstance(adapter, TailListing):
        return (Synced(thread.id, thread.generation),)
    listing: TailListing = adapter
    tail: Tail | None = await _asked(lambda: listing.tail(request), unheard, means)
    if tail is None and thread.handle is None:
        # A conversation of which nothing is known is not gone on with.
        return (Synced(thread.id, thread.generation),)
    return reconciling.listed(unheard, tail, means.clock)


async def _asked(ask: Callable[[], Awaitable[T]], unheard: Unheard, means: Means) -> T | None:
    """None when this backend cannot tell. Raises: AdapterError."""
    tries, agent = 0, unheard.agent
    while True:
        try:
            with means.breakers.asking(agent):
                return await ask()
        except AdapterError as error:
            tries += 1
            if error.kind in _HOPELESS:
                thread = unheard.thread.id
                log.warning("thread.not-told", agent=agent.name, thread=thread, detail=error.detail)
                return None
            wait = None
            if error.kind in _PASSING and not means.breakers.refuses(agent):
                remaining, jitter = agent.policies.turn_timeout, means.pace.jitter()
                wait = wait_before(error.kind, tries, retry_after=error.retry_after, remaining=remaining, jitter=jitter)
            if wait is None:
                raise
            await means.pace.sleep(wait)
