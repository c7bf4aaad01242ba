"""Looks up, before the next request, what became of a service call whose end nobody heard. Law: it asks the backend and
changes nothing there; what follows is stored together with the next request, or not at all.

It is left to the next request, and not done when a crash is recovered from: who recovers knows no adapters, a conversation
that nobody goes on with costs no reads, and a backend that is away does not hold up the start.

Prepares a service call: the thread is held and caught up, the call is recorded, and what it carries is read. Law: nothing
is sent that is not recorded; another process on the thread is waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog
from msgspec.structs import replace

from gateway.a2a.model import TERMINAL
from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.failures import retry_wait
from gateway.core.history import View, project
from gateway.core.ownership import adapter_state
from gateway.core.turn import reconcile
from gateway.core.turn.reconcile import UnknownOutcome
from gateway.engine.runtime import Runtime
from gateway.engine.tool_loop import is_cancelled
from gateway.engine.turn_context import TurnContext, load_history
from gateway.ledger.calls import Complete
from gateway.ledger.errors import Conflict
from gateway.ledger.leases import Release
from gateway.ledger.points import CommitPoint
from gateway.ledger.tasks import EventRow
from gateway.ledger.threads import MarkSynced, ThreadRecord
from gateway.ports.adapter import AdapterError, ServiceRequest
from gateway.ports.capabilities import Fetching, Tail, TailListing
from gateway.ports.conversation import HandleKind, HistoryRecord, Item, UserItem

log = structlog.get_logger("gateway.catching-up")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """`points` make the thread one that can go on. `doubtful`: the turn of a call of which nothing was found, and which may
    still be at work."""

    points: tuple[CommitPoint, ...]
    doubtful: str | None = None


async def catch_up(
    means: Runtime,
    agent: Agent,
    thread: ThreadRecord,
    asking: Callable[[str | None, tuple[Item, ...]], ServiceRequest],
) -> CaughtUp:
    """What an unsynced thread needs. `asking` makes a request on a handle, for the adapter to compare with.

    Raises: AdapterError when the backend could not be asked; the thread stays as it is. LedgerUnavailable, CorruptRecord.
    """
    ledger = means.ledger
    call = await ledger.unknown_call(thread.id)
    if call is None:
        return CaughtUp((MarkSynced(thread.id, thread.generation),))
    records = await ledger.history(thread.id, unsent_only=True)
    # What the call carried has been due ever since.
    owned = ownership.of_thread(thread, agent.adapter.ownership)
    unheard = UnknownOutcome(agent, thread, call, owned, project(owned, records, call.turn))
    static = thread.handle_kind is HandleKind.STATIC
    if call.displaced and not static:
        return CaughtUp(reconcile.call_failed(unheard, "left-out", means.clock))
    if static:
        points = await _by_tail(unheard, asking(thread.handle or call.pending, unheard.view.items), means)
    else:
        points = await _by_fetching(unheard, means)
    adopted = any(isinstance(point, Complete) for point in points)
    log.info("thread.caught-up", agent=agent.name, thread=thread.id, turn=call.turn, adopted=adopted)
    return CaughtUp(points, call.turn if static and not adopted and thread.handle is not None else None)


async def _by_fetching(unheard: UnknownOutcome, means: Runtime) -> tuple[CommitPoint, ...]:
    adapter, pending = unheard.agent.adapter, unheard.call.pending
    if pending is None or not isinstance(adapter, Fetching):
        return reconcile.unresolved(unheard, means.clock)
    found = await _asked(lambda: adapter.fetch(pending), unheard, means)
    if found is None:
        return reconcile.unresolved(unheard, means.clock)
    return reconcile.from_fetch(unheard, found, means.clock)


async def _by_tail(unheard: UnknownOutcome, request: ServiceRequest, means: Runtime) -> tuple[CommitPoint, ...]:
    adapter, thread = unheard.agent.adapter, unheard.thread
    if request.handle is None or not isinstance(adapter, TailListing):
        return (MarkSynced(thread.id, thread.generation),)
    listing: TailListing = adapter
    tail: Tail | None = await _asked(lambda: listing.tail(request), unheard, means)
    if tail is None and thread.handle is None:
        # A conversation of which nothing is known is not gone on with.
        return (MarkSynced(thread.id, thread.generation),)
    return reconcile.from_tail(unheard, tail, means.clock)


async def _asked(ask: Callable[[], Awaitable[T]], unheard: UnknownOutcome, means: Runtime) -> T | None:
    """None when this backend cannot tell. Raises: AdapterError."""
    tries, agent = 0, unheard.agent
    while True:
        try:
            with means.breakers.asking(agent):
                return await ask()
        except AdapterError as error:
            tries += 1
            if error.kind.meaning.conclusive:
                # What else the failure means is found out by the next request.
                thread = unheard.thread.id
                log.warning("thread.not-told", agent=agent.name, thread=thread, detail=error.detail)
                return None
            wait = None
            if error.kind.meaning.transient and not means.breakers.refuses(agent):
                remaining, jitter = agent.policies.turn_timeout, means.pace.jitter()
                wait = retry_wait(error.kind, tries, retry_after=error.retry_after, remaining=remaining, jitter=jitter)
            if wait is None:
                raise
            await means.pace.sleep(wait)


class Parked(Exception):
    """The turn cannot begin: one before it waits for its caller."""


class CallPreparation:
    """The service calls of one turn, prepared. `doubtful`: the backend may still be at work on this earlier turn of the
    thread, so that it has to be asked again while it is locked."""

    __slots__ = ("_course", "_deadline", "_lane", "_means", "_work", "doubtful")

    def __init__(self, course: TurnContext) -> None:
        self._course = course
        self._means, self._work, self._lane = course.means, course.work, course.lane
        self._deadline = 0.0
        self.doubtful: str | None = None

    async def prepare(self) -> ServiceRequest:
        """The request of the turn's next service call. Raises: TurnFailed, Parked, AdapterError, Conflict."""
        await self.take_call()
        self.set_deadline()
        await self._course.offer()
        return await self.request()

    def set_deadline(self) -> None:
        """Once: it is the turn's."""
        if not self._deadline:
            self._deadline = self._means.clock.monotonic() + self._work.agent.policies.turn_timeout

    async def request(self) -> ServiceRequest:
        """What the call carries, as the thread is now."""
        course = self._course
        course.machine.update_facts(course.facts())
        course.view = await self._recall()
        return self._asking(self._lane.thread.handle, course.view.items)

    async def take_call(self) -> None:
        """Takes the lease and records the call. Another process on the thread is waited for, until the turn's timeout."""
        work, lane, ledger = self._work, self._lane, self._means.ledger
        gave_back = False
        while not work.prepared:
            if not lane.current:
                await self._course.reread()
            try:
                await self._commit_prepare(await self._catch_up() if lane.thread.unsynced else ())
            except Conflict:
                if is_cancelled():
                    # Told while the commit went on, and not again: this must not try for ever.
                    raise asyncio.CancelledError from None
                lane.current = False
                record = await ledger.task(work.caller, work.agent.name, work.live.id)
                if record is None or record.state in TERMINAL:
                    raise
                if await ledger.process_of(work.turn) != self._means.holder:
                    raise  # This process stood still, and another has taken the turn up.
                if self._begins and lane.may_release and not gave_back:
                    # A turn of another process may come first, which cannot begin as long as the lease is held here.
                    await ledger.commit(Release(lane.thread.id, self._means.holder))
                    lane.leased, gave_back = False, True
                if await ledger.waiting_task(lane.thread.id) is not None:
                    raise Parked from None
                await asyncio.sleep(self._means.lease / 10)

    @property
    def _begins(self) -> bool:
        """The call that comes next is the turn's first, and takes the lease."""
        return self._course.attempt == 0 and self._course.machine.round == 0

    def _asking(self, handle: str | None, items: tuple[Item, ...]) -> ServiceRequest:
        work, lane, tools = self._work, self._lane, self._course.tools
        declared = work.agent.adapter.ownership
        owned = ownership.of_thread(lane.thread, declared)
        last = tools.exhausted and work.agent.policies.round_limit_action == "final_call_without_tools"
        return ServiceRequest(
            handle=handle,
            items=items,
            context_id=work.live.context_id,
            task_id=work.live.id,
            principal=work.caller.principal,
            message=work.message,
            first_message=work.first_message,
            state=adapter_state(work.agent.adapter, lane.thread),
            accepted_output_modes=work.accepted_output_modes,
            deadline=self._deadline,
            owner=None if owned.owner is declared.owner else owned.owner,
            tools=() if last else tools.declarations(),
        )

    async def _catch_up(self) -> tuple[CommitPoint, ...]:
        """Nobody heard the end of an earlier service call of this thread: what the backend knows of it comes first."""
        found = await catch_up(self._means, self._work.agent, self._lane.thread, self._asking)
        self.doubtful = found.doubtful
        return found.points

    async def _recall(self) -> View:
        work, thread = self._work, self._lane.thread
        if work.fresh_thread and self._course.machine.round == 0:
            first = HistoryRecord(1, 1, UserItem(work.message), turn_id=work.turn)
            return project(ownership.of_thread(thread, work.agent.adapter.ownership), (first,), work.turn)
        return await load_history(self._means.ledger, work.agent, thread, work.turn)

    async def _commit_prepare(self, before: tuple[CommitPoint, ...]) -> None:
        """`before`: what has to be stored of the thread in the same unit."""
        course, work, lane = self._course, self._work, self._lane
        thread = ownership.apply_points(lane.thread, before)
        working, final = course.working()
        takes_lease = self._begins
        round_, attempt = course.machine.round, course.attempt
        prepare = self._means.prepare(thread, work.turn, work.live.id, round_=round_, attempt=attempt)

        def points(row: EventRow | None) -> tuple[CommitPoint, ...]:
            return (*before, replace(prepare, event=row))

        def stored() -> None:
            work.live.status = working
            work.service_call, work.prepared = prepare.service_call, True
            course.base = thread.handle if takes_lease else course.base
            lane.thread, lane.leased = replace(thread, generation=thread.generation + takes_lease), True

        await work.live.journal.commit(points, final, stored)
