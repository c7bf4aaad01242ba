"""Prepares the service calls of a turn: takes the lease, withdraws what an earlier call has left waiting, resolves an earlier
call of unknown outcome, records the call, and reads what the call carries.

Law: nothing is sent that is not recorded. What became of an earlier call is asked of the backend without changing anything
there, and stored together with the next request or not at all.

The question is left to the next request, and not asked at recovery: recovery knows no adapters, a conversation without a
next message costs no reads, and a backend that is away does not hold up the start.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from gateway.a2a.model import TERMINAL
from gateway.core import ownership
from gateway.core.backend_jobs import is_under_way
from gateway.core.failures import retry_wait
from gateway.core.history import View, project
from gateway.core.task_record import answer_id
from gateway.core.turn import reconcile
from gateway.core.turn.reconcile import UnknownOutcome
from gateway.engine.cancellation import cancel_at_backend
from gateway.engine.tool_loop import is_cancelled
from gateway.engine.turn_context import TurnContext
from gateway.engine.withdrawal import withdraw
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.calls import Complete
from gateway.ledger.errors import Conflict
from gateway.ledger.leases import Release
from gateway.ledger.points import CommitPoint
from gateway.ledger.tasks import EventRow, OpenTurn
from gateway.ledger.threads import MarkSynced
from gateway.ports.adapter import AdapterError, ErrorClass, ServiceRequest
from gateway.ports.capabilities import CanFetch, CanFind, CanListTail, Fate, Fetched, Ongoing, Tail
from gateway.ports.conversation import HandleKind, Item, UserItem

log = structlog.get_logger("gateway.engine.preparation")

T = TypeVar("T")

_LOOK_AGAIN = 0.1
"""Seconds from one look at a withdrawal that somebody else makes to the next."""


class Parked(Exception):
    """The turn cannot begin: an earlier turn of its thread, that of the task, is paused."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.task = task


class CallPreparation(msgspec.Struct):
    """Prepares the service calls of one turn."""

    context: TurnContext
    _deadline: float = 0.0

    async def first_request(self) -> ServiceRequest:
        """The request of a service call that is recorded, at its first try here. Raises: TurnFailed, LedgerUnavailable."""
        context = self.context
        if not self._deadline:
            self._deadline = context.runtime.clock.monotonic() + context.run.agent.policies.turn_timeout
        await context.offer_tools()
        return await self.request()

    async def request(self) -> ServiceRequest:
        """The request on the thread as it is now."""
        context = self.context
        context.machine.update_facts(context.facts())
        if context.run.fresh_thread and context.machine.round == 0:
            # The message is all that the thread holds, whoever keeps the conversation.
            context.view = View((UserItem(context.run.message),), (1,))
        else:
            context.view = await context.history()
        return self._request(context.continued(context.thread).handle, context.view.items)

    async def take_call(self) -> None:
        """Takes the lease and records the call. Waits for another process on the thread until the turn's timeout.

        Raises: Parked, AdapterError, Conflict, LedgerUnavailable.
        """
        context, run, held = self.context, self.context.run, self.context.held
        ledger, holder = context.runtime.ledger, context.runtime.holder
        gave_back = False
        while not run.prepared:
            if not held.current:
                await context.reread_thread()
            try:
                if held.thread.withdraws and self._is_first:
                    await self._withdraw()
                await self._commit(await self._resolve() if held.thread.unsynced else ())
            except Conflict:
                if is_cancelled():
                    # The cancellation came during the commit, and comes no second time: this must not try for ever.
                    raise asyncio.CancelledError from None
                held.current = False
                record = await ledger.task(run.caller, run.agent.name, run.live.id)
                if record is None or record.state in TERMINAL:
                    raise
                if await ledger.process_of(run.turn) != holder:
                    raise  # This process was suspended, and another process has taken the turn over.
                if self._is_first and held.may_release and not gave_back:
                    # An earlier turn in another process cannot begin as long as the lease is held here.
                    await ledger.commit(Release(held.thread.id, holder))
                    held.leased = False
                    gave_back = True
                paused = await ledger.waiting_task(held.thread.id)
                if paused is not None:
                    raise Parked(paused) from None
                await self._wait_for_thread()

    async def _wait_for_thread(self) -> None:
        """Returns when a turn of the thread ends or pauses in another process, and after a tenth of a lease: a lease may also
        run out or be given back. Raises: LedgerUnavailable."""
        runtime, thread = self.context.runtime, self.context.thread

        async def in_thread() -> set[OpenTurn]:
            return {turn for turn in await runtime.ledger.open_turns(thread.context) if turn.thread == thread.id}

        with suppress(TimeoutError):
            async with asyncio.timeout(runtime.lease / 10):
                before = await in_thread()
                with runtime.changes.heard({turn.task for turn in before}, wanted=False) as heard:
                    while await in_thread() == before:
                        await heard.within(None)

    @property
    def _is_first(self) -> bool:
        """The next try is the turn's first, and takes the lease."""
        return self.context.attempt == 0 and self.context.machine.round == 0

    def _request(self, handle: str | None, items: tuple[Item, ...]) -> ServiceRequest:
        run, thread, tools = self.context.run, self.context.thread, self.context.tools
        declared = run.agent.adapter.ownership
        owned = ownership.of_thread(thread, declared)
        last = tools.exhausted and run.agent.policies.round_limit_action == "final_call_without_tools"
        return ServiceRequest(
            handle=handle,
            items=items,
            context_id=run.live.context_id,
            task_id=run.live.id,
            principal=run.caller.principal,
            message=run.message,
            first_message=run.live.outputs[0].message,
            state=ownership.adapter_state(run.agent.adapter, thread),
            accepted_output_modes=run.accepted_output_modes,
            deadline=self._deadline,
            owner=None if owned.owner is declared.owner else owned.owner,
            tools=() if last else tools.declarations(),
            secret=self.context.runtime.secrets.open(thread),
            answer=answer_id(run.turn),
        )

    async def _commit(self, before: tuple[CommitPoint, ...]) -> None:
        """Commits C2. `before` holds the changes of the thread that are stored in the same unit."""
        context, run, takes_lease = self.context, self.context.run, self._is_first
        thread = ownership.apply_points(context.thread, before)
        working, final = context.working()
        prepare = context.prepare(thread)

        def points(row: EventRow | None) -> tuple[CommitPoint, ...]:
            return (*before, replace(prepare, event=row))

        def stored() -> None:
            run.live.status = working
            run.begin_call(prepare.service_call)
            context.base = thread.handle if takes_lease else context.base
            context.held.take_lease(thread, first=takes_lease)

        await run.live.journal.commit(points, final, stored)

    # --- earlier service calls of the thread

    async def _withdraw(self) -> None:
        """Returns when nothing is on its way to the backend. What the backend does not confirm is tried again later, and the
        request is made all the same. Raises: LedgerUnavailable, CorruptRecord."""
        agent, runtime, held = self.context.run.agent, self.context.runtime, self.context.held
        failed: set[str] = set()
        while left := [job for job in await runtime.ledger.withdrawals(held.thread.id) if job.job not in failed]:
            if any(is_under_way(job.due_at, runtime.clock.now()) for job in left):
                await runtime.pace.sleep(_LOOK_AGAIN)
                continue
            with suppress(Conflict):  # somebody else has just claimed it
                if not await withdraw(agent, left[0], runtime.ledger, runtime.clock, runtime.pace.jitter()):
                    failed.add(left[0].job)
        held.thread = replace(held.thread, withdraws=bool(failed))

    async def _resolve(self) -> tuple[CommitPoint, ...]:
        """The commit points after which the thread can continue. Raises: AdapterError when the backend could not be
        asked, and then the thread is not changed; Conflict when another process was faster; LedgerUnavailable,
        CorruptRecord."""
        self.context.doubtful = None
        agent, thread, runtime = self.context.run.agent, self.context.thread, self.context.runtime
        call = await runtime.ledger.unknown_call(thread.id)
        if call is None:
            return (MarkSynced(thread.id, thread.generation),)
        records = await runtime.ledger.history(thread.id, unsent_only=True)
        if not any(record.turn_id == call.turn for record in records):
            # The items of that call count as unsent until somebody has found out what became of it.
            raise Conflict(f"another process has caught up thread {thread.id!r}")
        owned = ownership.of_thread(thread, agent.adapter.ownership)
        seal = partial(runtime.secrets.seal, thread=thread.id)
        earlier = UnknownOutcome(agent, thread, call, owned, project(owned, records, call.turn), seal)
        static = thread.handle_kind is HandleKind.STATIC
        if call.displaced and not static:
            return reconcile.call_failed(earlier, "left-out", runtime.clock)
        points = await (self._in_conversation(earlier) if static else self._by_fetch(earlier))
        adopted = any(isinstance(point, Complete) for point in points)
        log.info("thread.caught-up", agent=agent.name, thread=thread.id, turn=call.turn, adopted=adopted)
        continues = ownership.apply_points(thread, points).handle is not None
        self.context.doubtful = call.turn if static and not adopted and continues else None
        return points

    async def _in_conversation(self, earlier: UnknownOutcome) -> tuple[CommitPoint, ...]:
        """A run that has completed tells its own end; else the conversation shows how much of the call it holds."""
        adapter = earlier.agent.adapter
        if earlier.thread.handle is None and earlier.call.pending is None and isinstance(adapter, CanFind):
            finding, request = adapter, self._request(None, earlier.view.items)
            found_names = await self._look_up(lambda: finding.find(request), earlier)
            earlier = earlier if found_names is None else reconcile.named(earlier, found_names)
        names = reconcile.names(earlier)
        if names is not None and isinstance(adapter, CanFetch):
            found = await self._end_of_run(adapter, names, earlier)
            if found is not None and found.fate is Fate.COMPLETED:
                return reconcile.from_run(earlier, found.events, self.context.runtime.clock)
        return await self._by_tail(earlier)

    async def _end_of_run(self, adapter: CanFetch, names: Ongoing, earlier: UnknownOutcome) -> Fetched | None:
        """The fate of a run whose turn has ended. One that is still at work is waited for as for any other lock, and then
        ended, since a conversation takes one run at a time. RUNNING where that does not help; None as in `_look_up`."""
        runtime, tries = self.context.runtime, 0
        while True:
            found = await self._look_up(lambda: adapter.fetch(names), earlier)
            if found is None or found.fate is not Fate.RUNNING:
                return found
            tries += 1
            locked = AdapterError(ErrorClass.LOCKED, "an earlier run is at work")
            wait = retry_wait(locked, tries, earlier.agent.policies.turn_timeout, runtime.pace.jitter())
            if wait is not None:
                await runtime.pace.sleep(wait)
            elif await cancel_at_backend(earlier.agent, self.context.run.live.id, names):
                return await self._look_up(lambda: adapter.fetch(names), earlier)
            else:
                return found

    async def _by_fetch(self, earlier: UnknownOutcome) -> tuple[CommitPoint, ...]:
        adapter, names, clock = earlier.agent.adapter, reconcile.names(earlier), self.context.runtime.clock
        if names is None or not isinstance(adapter, CanFetch):
            return reconcile.unresolved(earlier, clock)
        found = await self._look_up(lambda: adapter.fetch(names), earlier)
        return reconcile.unresolved(earlier, clock) if found is None else reconcile.from_fetch(earlier, found, clock)

    async def _by_tail(self, earlier: UnknownOutcome) -> tuple[CommitPoint, ...]:
        adapter, thread = earlier.agent.adapter, earlier.thread
        request = self._request(thread.handle or earlier.call.pending, earlier.view.items)
        if request.handle is None or not isinstance(adapter, CanListTail):
            return (MarkSynced(thread.id, thread.generation),)
        listing: CanListTail = adapter
        lost = False

        async def ask() -> Tail | None:
            nonlocal lost
            try:
                return await listing.tail(request)
            except AdapterError as error:
                lost = error.kind.meaning.handle_lost
                raise

        tail: Tail | None = await self._look_up(ask, earlier)
        if tail is None and earlier.call.run is not None and not lost:
            # The backend has named the call, so that it has taken what the call carried.
            tail = Tail(len(earlier.view.items))
        if tail is None and thread.handle is None:
            # A conversation with an unknown state does not continue.
            return (MarkSynced(thread.id, thread.generation),)
        return reconcile.from_tail(earlier, tail, self.context.runtime.clock)

    async def _look_up(self, ask: Callable[[], Awaitable[T]], earlier: UnknownOutcome) -> T | None:
        """None when this backend has no answer. Raises: AdapterError."""
        tries, agent, runtime = 0, earlier.agent, self.context.runtime
        while True:
            try:
                with runtime.breakers.request(agent):
                    return await ask()
            except AdapterError as error:
                tries += 1
                if error.kind.meaning.conclusive:
                    # What else the failure means is found out by the next request.
                    thread = earlier.thread.id
                    log.warning("thread.not-told", agent=agent.name, thread=thread, detail=error.detail)
                    drop_tracebacks(error)
                    return None
                wait = None
                if error.kind.meaning.transient and not runtime.breakers.refuses(agent):
                    wait = retry_wait(error, tries, agent.policies.turn_timeout, runtime.pace.jitter())
                if wait is None:
                    raise
                drop_tracebacks(error)
                await runtime.pace.sleep(wait)
