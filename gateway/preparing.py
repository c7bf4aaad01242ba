"""Prepares a service call: the thread is held and caught up, the call is recorded, and what it carries is read. Law: nothing
is sent that is not recorded; another process on the thread is waited for.
"""

import asyncio

from msgspec.structs import replace

from gateway import ownership
from gateway.catching_up import catch_up
from gateway.commits.failures import Conflict
from gateway.commits.leases import Release
from gateway.commits.points import CommitPoint
from gateway.commits.tasks import EventRow
from gateway.course import Course
from gateway.invoking import is_cancelled
from gateway.items import HistoryRecord, Item, UserItem
from gateway.model import TERMINAL
from gateway.ports import ServiceRequest
from gateway.projection import View, project
from gateway.recall import recall
from gateway.states import state_of


class Parked(Exception):
    """The turn cannot begin: one before it waits for its caller."""


class Preparer:
    """The service calls of one turn, prepared. `doubtful`: the backend may still be at work on this earlier turn of the
    thread, so that it has to be asked again while it is locked."""

    __slots__ = ("_course", "_deadline", "_lane", "_means", "_work", "doubtful")

    def __init__(self, course: Course) -> None:
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
        course.machine.facts = course.facts()
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
            state=state_of(work.agent.adapter, lane.thread),
            accepted_output_modes=work.accepted_output_modes,
            deadline=self._deadline,
            owner=None if owned.owner is declared.owner else owned.owner,
            tools=() if last else tools.declarations(),
        )

    async def _catch_up(self) -> tuple[CommitPoint, ...]:
        """Nobody heard the end of an earlier service call of this thread: what the backend knows of it comes first."""
        means = self._means
        found = await catch_up(means.ledger, self._work.agent, self._lane.thread, self._asking, means.clock, means.pace)
        self.doubtful = found.doubtful
        return found.points

    async def _recall(self) -> View:
        work, thread = self._work, self._lane.thread
        if work.fresh_thread and self._course.machine.round == 0:
            first = HistoryRecord(1, 1, UserItem(work.message), turn_id=work.turn)
            return project(ownership.of_thread(thread, work.agent.adapter.ownership), (first,), work.turn)
        return await recall(self._means.ledger, work.agent, thread, work.turn)

    async def _commit_prepare(self, before: tuple[CommitPoint, ...]) -> None:
        """`before`: what has to be stored of the thread in the same unit."""
        course, work, lane = self._course, self._work, self._lane
        thread = ownership.behind_all(lane.thread, before)
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
