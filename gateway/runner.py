"""Carries out turns: takes the lease, makes the service call, stores and shows what it says, ends the turn.

Law: a turn belongs to the application, not to a request; the only broad `except` is here; every exit ends the turn or
leaves it to recovery, with nothing shown that is not stored.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

import structlog
from msgspec.structs import replace

from gateway import handles, ownership
from gateway.agents import Agent
from gateway.clock import Clock, timestamp
from gateway.commits import (
    Accept,
    Append,
    Beat,
    Caller,
    CommitPoint,
    Complete,
    Conflict,
    CorruptRecord,
    EventRow,
    Fail,
    Finish,
    LedgerUnavailable,
    Lose,
    Orphan,
    Pending,
    Prepare,
    Release,
    Renew,
    Rewind,
    ThreadRecord,
    UnfinishedTurn,
)
from gateway.failures import INTERNAL, TURN_TIMEOUT
from gateway.fanout import Fanout
from gateway.items import HandleKind, HistoryRecord, Ownership, StorageOwner, UserItem
from gateway.lifecycle import apply
from gateway.live import Lane, Work, status
from gateway.model import (
    INTERRUPTED,
    TERMINAL,
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from gateway.ports import Adapter, AdapterError, AdapterEvent, CallStarted, ErrorClass, Ledger, ServiceRequest
from gateway.projection import View, project
from gateway.recall import recall, weight_to_measure
from gateway.recovery import settle
from gateway.retrying import Phase, may_repeat, wait_before
from gateway.states import state_of
from gateway.turn import (
    CloseCall,
    Command,
    Conflicting,
    DropCall,
    EndTurn,
    NotePending,
    Publish,
    Reply,
    Turn,
    TurnFacts,
)
from gateway.watching import Watch
from gateway.whole_answers import whole
from gateway.wire.v1_0 import encode_event

log = structlog.get_logger("gateway.runner")

_FAULTS = (Exception, KeyboardInterrupt, SystemExit, BaseExceptionGroup)
"""What an adapter may raise: none of it may end the process for all the others."""


_WARNED = 1000
"""Threads of which is remembered that their operator was warned."""

Call = Callable[[Adapter, ServiceRequest], AsyncGenerator[AdapterEvent, None]]


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. A lease is renewed `renewals` times before it would run out."""

    length: float = 5.0
    renewals: int = 3


@dataclass(frozen=True, slots=True)
class Pace:
    """How the time between two tries passes. `jitter` gives numbers from 0 to 1."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


@dataclass(slots=True)
class _Serving:
    """A service call under way. `attempt` is the number of the next try, `tries` how many of this very request failed.

    `base` is the handle at which the turn began, `pending` the one that the try under way was told of.
    """

    work: Work
    lane: Lane
    machine: Turn
    view: View = field(default_factory=lambda: View((), ()))
    phase: Phase = Phase.SENT
    attempt: int = 0
    tries: int = 0
    base: str | None = None
    pending: str | None = None
    deadline: float = 0.0


class Runner:
    """Runs the turns of this process. Use inside `async with runner.running()`."""

    def __init__(
        self,
        ledger: Ledger,
        fanout: Fanout,
        clock: Clock,
        lease: LeaseTimes | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._ledger = ledger
        self._fanout = fanout
        self._clock = clock
        self._lease = lease or LeaseTimes()
        self._pace = pace or Pace()
        self._holder = clock.row_id()
        self._lanes: dict[str, Lane] = {}
        self._tasks: dict[str, Work] = {}
        self._expected: dict[str, str] = {}
        self._given_up: set[str] = set()
        self._warned: dict[str, None] = {}
        self.watch = Watch(ledger)
        self.call: Call = lambda adapter, request: adapter.call(request)
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._settle()
                upkeep = [group.create_task(self._upkeep()), group.create_task(self.watch.run())]
                try:
                    yield
                finally:
                    for task in upkeep:
                        task.cancel()
                    for work in self._tasks.values():
                        if work.task is not None:
                            work.task.cancel()
                    self._group = None
        finally:
            for work in list(self._tasks.values()):
                self._dismiss(work)

    # --- what operations ask

    def work(self, task: str) -> Work | None:
        """The turn of this task that waits or runs here."""
        return self._tasks.get(task)

    @property
    def process(self) -> str:
        """The id under which this process holds leases and accepts turns."""
        return self._holder

    @property
    def patience(self) -> float:
        """Seconds in which another process has seen what it is asked, or has been found dead."""
        return 2 * self._lease.length

    def beat(self) -> Beat:
        """To be stored with a turn that has to wait: it is nobody's leftover as long as this process lives."""
        return Beat(self._holder, self._lease_until(), self._clock.now())

    def works(self, caller: Caller, context_id: str) -> list[Work]:
        """The turns of this context that wait or run here, in the order in which they came."""
        return [work for work in self._tasks.values() if work.caller == caller and work.live.context_id == context_id]

    async def idle(self, agents: Iterable[Agent] | None = None) -> None:
        """Returns when no turn (of these agents) waits or runs here."""
        chosen = None if agents is None else {id(agent) for agent in agents}
        while busy := [work.done for work in self._tasks.values() if chosen is None or id(work.agent) in chosen]:
            await asyncio.wait(busy)

    @contextmanager
    def expecting(self, turn: str, thread: str) -> Iterator[None]:
        """While a turn is being accepted it is nobody's leftover, and counts as queued."""
        self._expected[turn] = thread
        try:
            yield
        finally:
            self._expected.pop(turn, None)

    def queued(self, thread: str) -> int:
        """How many turns of this thread arrive, wait or run here."""
        lane = self._lanes.get(thread)
        return list(self._expected.values()).count(thread) + (lane.length if lane is not None else 0)

    def preparation(self, accept: Accept) -> Prepare:
        """C2 for a turn that begins in the very unit that accepts it, where no other runs on its thread."""
        return self._lease_and_call(accept.thread, accept.turn, accept.task, 0)

    def start(self, work: Work, thread: ThreadRecord) -> None:
        """Queues an accepted turn behind the others of its thread; takes over the hold on the task's channel."""
        lane = self._lanes.get(thread.id)
        if lane is None:
            # Who did not take the lease with what was read may have read it before the thread's last turn ended.
            lane = self._lanes[thread.id] = Lane(thread, current=work.prepared or work.fresh_thread)
        if work.prepared:
            lane.thread, lane.leased = replace(lane.thread, generation=lane.thread.generation + 1), True
        self._tasks[work.live.id] = work
        lane.waiting.append(work)
        self._expected.pop(work.turn, None)
        self._next(lane)

    def interrupt(self, work: Work, thread: str) -> None:
        """Asks the turns before this one to end, so that it need not wait for what they do."""
        lane = self._lanes[thread]
        for other in (*reversed(lane.waiting), *([lane.running] if lane.running else ())):
            if other is not work:
                self.ask(other)

    async def cancel(self, work: Work) -> None:
        """Asks the turn to end; returns when it has ended, one way or another."""
        self.ask(work)
        await work.ended()

    def ask(self, work: Work) -> None:
        """Asks the turn to end."""
        if not work.cancel_asked:
            work.cancel_asked = True
            if work.task is None:
                self._take_out(work)
            elif work.begun:
                work.task.cancel()

    def _take_out(self, work: Work) -> None:
        """A turn that waits is ended beside the one that runs."""
        lane = next(lane for lane in self._lanes.values() if work in lane.waiting)
        lane.waiting.remove(work)
        self._set_off(work, lane)

    # --- lanes and leases

    def _next(self, lane: Lane) -> None:
        if lane.running is None and lane.waiting:
            lane.running = lane.waiting.popleft()
            self._set_off(lane.running, lane)

    def _set_off(self, work: Work, lane: Lane) -> None:
        if self._group is not None:
            work.task = self._group.create_task(self._run(lane, work))

    def _leave(self, work: Work, lane: Lane) -> None:
        if lane.running is work:
            lane.running = None
        self._dismiss(work)
        self._next(lane)
        if lane.running is None:
            self._lanes.pop(lane.thread.id, None)
            if lane.leased:
                self._given_up.add(lane.thread.id)

    def _dismiss(self, work: Work) -> None:
        del self._tasks[work.live.id]
        if work.live.status.state in TERMINAL:
            self._fanout.close(work.live.id)
        self._fanout.release(work.live.id)
        if not work.opened.done():
            work.opened.set_result(None)
        work.done.set_result(None)

    async def _upkeep(self) -> None:
        """Renews the leases held here and ends what a dead process left, for as long as this one runs."""
        while True:
            await asyncio.sleep(self._lease.length / self._lease.renewals)
            try:
                await self._keep_leases()
                await self._heed()
                await self._settle()
            except LedgerUnavailable as error:
                log.warning("upkeep.skipped", error=str(error))

    async def _keep_leases(self) -> None:
        """Those of idle threads that no turn gave back go now: what is left there is settled next."""
        idle = self._given_up - self._lanes.keys()
        points: list[CommitPoint] = [Release(thread, self._holder) for thread in sorted(idle)]
        if self._lanes:
            points.append(Renew(tuple(self._lanes), self._holder, self._lease_until()))
        if any(not work.prepared for work in self._tasks.values()):
            points.append(self.beat())
        if points:
            await self._ledger.commit(*points)
        self._given_up -= idle

    async def _heed(self) -> None:
        """Another process has been asked to cancel what runs here."""
        if self._tasks:
            for task in await self._ledger.cancels_asked(self._holder):
                work = self._tasks.get(task)
                if work is not None:
                    self.ask(work)

    async def _settle(self) -> None:
        for leftover in await self._ledger.unfinished(self._clock.now(), self._holder):
            if leftover.turn in self._expected or self._runs(leftover):
                continue
            try:
                await settle(leftover, self._ledger, self._fanout, self._clock)
            except CorruptRecord as error:
                log.error("turn.unreadable", task=leftover.task.id, turn=leftover.turn, error=str(error))

    def _runs(self, leftover: UnfinishedTurn) -> bool:
        work = self._tasks.get(leftover.task.id)
        return work is not None and work.turn == leftover.turn

    def _lease_until(self) -> int:
        return self._clock.now() + int(self._lease.length * 1000)

    # --- one turn

    async def _run(self, lane: Lane, work: Work) -> None:
        work.begun = True
        try:
            await self._turn(_Serving(work, lane, self._machine(work, lane), base=lane.thread.handle))
        except Conflict as error:
            log.warning("turn.lost", task=work.live.id, turn=work.turn, error=str(error))
            lane.current = False
            self._fanout.close(work.live.id)
        except LedgerUnavailable as error:
            log.error("turn.not-recorded", task=work.live.id, turn=work.turn, error=str(error))
            lane.current = False
        except Exception:  # not even its failure can be recorded: recovery ends it, and the other turns go on
            log.exception("turn.not-recorded", task=work.live.id, turn=work.turn)
            lane.current = False
        finally:
            self._leave(work, lane)

    def _machine(self, work: Work, lane: Lane) -> Turn:
        return Turn(_facts(work, lane), self._clock)

    async def _turn(self, serving: _Serving) -> None:
        try:
            async with asyncio.timeout(serving.work.agent.policies.turn_timeout):
                await self._serve(serving)
        except AdapterError as error:
            await self._fail(serving, error.kind, error.detail)
        except TimeoutError:
            await self._fail(serving, TURN_TIMEOUT, "the turn ran into its own time limit")
        except asyncio.CancelledError as error:
            if not serving.work.cancel_asked:
                if _is_cancelled():
                    raise
                await self._fail(serving, INTERNAL, f"the adapter raised {error!r}")
            elif not serving.machine.ended:
                await self._perform(serving, serving.machine.cancel())
        except (Conflict, LedgerUnavailable):
            raise
        except _FAULTS as error:  # the one place that turns any fault into a terminal state
            await self._fail(serving, INTERNAL, repr(error), exc_info=True)

    async def _fail(self, serving: _Serving, failure: str, detail: str, *, exc_info: bool = False) -> None:
        if serving.work.live.status.state in TERMINAL | INTERRUPTED:
            log.error("turn.fault-after-end", task=serving.work.live.id, failure=failure, detail=detail)
            return
        correlation_id = self._clock.correlation_id()
        log.warning(
            "turn.failed",
            agent=serving.work.agent.name,
            task=serving.work.live.id,
            turn=serving.work.turn,
            failure=failure,
            detail=detail,
            correlation_id=correlation_id,
            exc_info=exc_info,
        )
        try:
            await self._perform(serving, serving.machine.fail(failure, correlation_id))
        except (Conflict, LedgerUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - what was said cannot be stored, or the reason is none: without them
            log.error("turn.unrecordable", correlation_id=correlation_id, error=repr(error))
            serving.machine, serving.pending = self._machine(serving.work, serving.lane), None
            await self._perform(serving, serving.machine.fail(INTERNAL, correlation_id))

    async def _serve(self, serving: _Serving) -> None:
        if serving.work.cancel_asked:
            raise asyncio.CancelledError
        request = await self._prepare(serving)
        while True:
            try:
                if serving.lane.thread.lost:
                    raise AdapterError(ErrorClass.HANDLE_EXPIRED, "the handle was lost in an earlier turn")
                return await self._call(serving, request)
            except AdapterError as error:
                request = await self._once_more(serving, request, error)

    async def _call(self, serving: _Serving, request: ServiceRequest) -> None:
        machine, thread = serving.machine, serving.lane.thread
        static = handles.is_static(thread)
        serving.phase = Phase.SENT
        async with aclosing(self.call(serving.work.agent.adapter, request)) as events:
            async for event in events:
                # The call that makes a static handle names it before it says anything.
                made = static and thread.handle is None
                serving.phase = _phase(event, serving.phase, names_first=made)
                commands = machine.receive(handles.in_conversation(thread, event) if static else event)
                if len(commands) == 1 and isinstance(commands[0], Publish):
                    self._publish(serving, commands[0].update)
                elif commands:
                    await self._perform(serving, commands)
                if machine.ended:
                    return
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the adapter ended its call without completing it")

    # --- a call that failed

    async def _once_more(self, serving: _Serving, request: ServiceRequest, error: AdapterError) -> ServiceRequest:
        """The request of the next try, recorded and after its wait. Raises: `error` where there is none."""
        work, thread = serving.work, serving.lane.thread
        declared = work.agent.adapter.ownership
        if serving.machine.ended:
            raise error
        wait = None
        if may_repeat(
            ownership.of_thread(thread, declared), serving.phase, error.kind, continues=request.handle is not None
        ):
            wait = wait_before(
                error.kind,
                serving.tries + 1,
                retry_after=error.retry_after,
                remaining=request.deadline - self._clock.monotonic(),
                jitter=self._pace.jitter(),
            )
        if wait is not None:
            await self._wait(serving, error, wait)
            return request
        following = ownership.successor(error.kind, thread, declared, work.agent.policies)
        if following is None or serving.phase is Phase.EMITTED:
            raise error
        return await self._rebuild(serving, error, following)

    async def _wait(self, serving: _Serving, error: AdapterError, seconds: float) -> None:
        """The try that failed is recorded before the wait, the next one behind it."""
        work = serving.work
        log.info(
            "call.retried",
            agent=work.agent.name,
            task=work.live.id,
            failure=error.kind,
            detail=error.detail,
            tries=serving.tries + 1,
            wait=round(seconds, 3),
        )
        failed = self._drop(serving, DropCall("failed", error.kind, ()), loses=False)

        def stored() -> None:
            work.prepared, serving.pending = False, None

        await work.live.journal.commit(lambda row: (*_appended(row), *failed), None, stored)
        serving.attempt, serving.tries = serving.attempt + 1, serving.tries + 1
        await self._pace.sleep(seconds)
        await self._take_call(serving)

    async def _rebuild(self, serving: _Serving, error: AdapterError, following: Ownership) -> ServiceRequest:
        """The conversation goes on in a new epoch, told whole from the shadow. Raises: `error` where that has gaps."""
        work, lane = serving.work, serving.lane
        if not ownership.is_complete(await self._ledger.history(lane.thread.id, unsent_only=False)):
            log.warning("thread.not-rebuilt", task=work.live.id, thread=lane.thread.id, reason="shadow with gaps")
            raise error
        failed = self._drop(serving, DropCall("failed", error.kind, ()), loses=False)
        begin = ownership.epoch(lane.thread, self._clock.row_id(), following)
        thread = ownership.behind(lane.thread, begin)
        serving.attempt, serving.tries, serving.pending, serving.base = serving.attempt + 1, 0, None, None
        prepare = self._lease_and_call(thread, work.turn, work.live.id, serving.attempt)

        def stored() -> None:
            lane.thread, work.service_call = thread, prepare.service_call

        for command in serving.machine.rebuilt(error.kind):
            if isinstance(command, Publish):
                self._publish(serving, command.update)
        await work.live.journal.commit(lambda row: (*_appended(row), *failed, begin, prepare), None, stored)
        log.warning("thread.rebuilt", agent=work.agent.name, task=work.live.id, failure=error.kind, detail=error.detail)
        serving.machine.facts = _facts(work, lane)
        return await self._request(serving)

    # --- the request

    async def _prepare(self, serving: _Serving) -> ServiceRequest:
        await self._take_call(serving)
        serving.deadline = self._clock.monotonic() + serving.work.agent.policies.turn_timeout
        return await self._request(serving)

    async def _take_call(self, serving: _Serving) -> None:
        """Takes the lease and records the call. Another process on the thread is waited for, until the turn's timeout."""
        work, lane = serving.work, serving.lane
        while not work.prepared:
            if not lane.current:
                lane.thread, lane.current = await self._reread(lane.thread), True
                serving.machine.facts = _facts(work, lane)
            try:
                await self._commit_prepare(serving)
            except Conflict:
                if _is_cancelled():
                    # Told while the commit went on, and not again: this must not try for ever.
                    raise asyncio.CancelledError from None
                lane.current = False
                record = await self._ledger.task(work.caller, work.agent.name, work.live.id)
                if record is None or record.state in TERMINAL:
                    raise
                await asyncio.sleep(self._lease.length / 10)

    async def _request(self, serving: _Serving) -> ServiceRequest:
        work, lane = serving.work, serving.lane
        declared = work.agent.adapter.ownership
        owned = ownership.of_thread(lane.thread, declared)
        serving.view = await self._view(work, lane)
        return ServiceRequest(
            handle=lane.thread.handle,
            items=serving.view.items,
            context_id=work.live.context_id,
            task_id=work.live.id,
            principal=work.caller.principal,
            message=work.message,
            first_message=work.first_message,
            state=state_of(work.agent.adapter, lane.thread),
            accepted_output_modes=work.accepted_output_modes,
            deadline=serving.deadline,
            owner=None if owned.owner is declared.owner else owned.owner,
        )

    async def _reread(self, known: ThreadRecord) -> ThreadRecord:
        thread = await self._ledger.thread(known.id)
        if thread is None:
            raise Conflict(f"thread {known.id!r} is gone")
        return thread

    async def _view(self, work: Work, lane: Lane) -> View:
        if work.fresh_thread:
            first = HistoryRecord(1, 1, UserItem(work.message), turn_id=work.turn)
            return project(ownership.of_thread(lane.thread, work.agent.adapter.ownership), (first,), work.turn)
        return await recall(self._ledger, work.agent, lane.thread, work.turn)

    async def _commit_prepare(self, serving: _Serving) -> None:
        work, lane = serving.work, serving.lane
        now = self._clock.now()
        working = status(apply(work.live.status.state, TaskState.WORKING), timestamp(now))
        final = None
        if work.live.status.state is not TaskState.WORKING:
            update = TaskStatusUpdateEvent(task_id=work.live.id, context_id=work.live.context_id, status=working)
            final = encode_event(StreamResponse(status_update=update))

        takes_lease = serving.attempt == 0
        prepare = self._lease_and_call(lane.thread, work.turn, work.live.id, serving.attempt)

        def points(row: EventRow | None) -> tuple[CommitPoint, ...]:
            return (replace(prepare, event=row),)

        def stored() -> None:
            work.live.status = working
            work.service_call, work.prepared = prepare.service_call, True
            serving.base = lane.thread.handle if takes_lease else serving.base
            lane.thread, lane.leased = replace(lane.thread, generation=lane.thread.generation + takes_lease), True

        await work.live.journal.commit(points, final, stored)

    def _lease_and_call(self, thread: ThreadRecord, turn: str, task: str, attempt: int) -> Prepare:
        return Prepare(
            thread=thread.id,
            generation=thread.generation,
            holder=self._holder,
            lease_until=self._lease_until(),
            turn=turn,
            task=task,
            service_call=self._clock.row_id(),
            round=0,
            attempt=attempt,
            handle_in=thread.handle,
            now=self._clock.now(),
            event=None,
        )

    # --- commands

    def _publish(self, serving: _Serving, update: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> None:
        work = serving.work
        if isinstance(update, TaskArtifactUpdateEvent):
            event = StreamResponse(artifact_update=update)
        else:
            event = StreamResponse(status_update=update)
        work.live.journal.add(encode_event(event))
        work.live.outputs[-1].apply(update)
        if not work.opened.done():
            work.opened.set_result(None)

    async def _perform(self, serving: _Serving, commands: list[Command]) -> None:
        points: list[CommitPoint] = []
        reply: Reply | None = None
        for command in commands:
            match command:
                case Publish(update=update):
                    self._publish(serving, update)
                case NotePending(handle=handle):
                    await self._note_pending(serving, handle)
                case CloseCall():
                    points.append(self._complete(serving, command))
                case DropCall():
                    points += self._drop(serving, command)
                case Conflicting():
                    points += self._conflict(serving, command, points)
                case Reply():
                    reply = command
                case EndTurn():
                    await self._end(serving, command, tuple(points), reply)

    async def _note_pending(self, serving: _Serving, handle: str) -> None:
        """A static one was made for this call: the adapter goes on to use it when it cannot be lost any more."""
        serving.pending = handle
        journal, pending = serving.work.live.journal, Pending(serving.work.service_call, handle)
        if handles.is_static(serving.lane.thread):
            await journal.commit(lambda row: (pending,) if row is None else (pending, Append(row)))
        else:
            journal.note(pending)

    def _complete(self, serving: _Serving, command: CloseCall) -> Complete:
        thread = serving.lane.thread
        # Without a new handle the chain goes on from before this request, and does not hold what it carried.
        carried = command.handle is not None or thread.owner is StorageOwner.GATEWAY
        return Complete(
            thread=thread.id,
            generation=thread.generation,
            turn=serving.work.turn,
            service_call=serving.work.service_call,
            handle_in=thread.handle,
            handle_out=command.handle if command.handle is not None else thread.handle,
            state=command.state,
            usage=command.usage,
            items=command.items,
            tool_calls=command.tool_calls,
            sent=serving.view.positions if carried else (),
            now=self._clock.now(),
            weight=weight_to_measure(serving.work.agent, serving.view, command.tool_calls),
            state_version=serving.work.agent.adapter.ownership.state_version,
        )

    def _drop(self, serving: _Serving, command: DropCall, *, loses: bool = True) -> list[CommitPoint]:
        """`loses`: a handle that the backend does not know marks the thread as lost."""
        work, thread = serving.work, serving.lane.thread
        if not work.prepared:
            return []
        fail = Fail(
            thread=thread.id,
            generation=thread.generation,
            turn=work.turn,
            service_call=work.service_call,
            status=command.status,
            error_class=command.error_class,
            items=command.items,
            now=self._clock.now(),
        )
        points: list[CommitPoint] = [fail]
        if loses and command.error_class in ownership.LOST and thread.handle is not None and not thread.lost:
            points.append(Lose(thread.id, thread.generation))
        left = ownership.orphan(thread, serving.pending)
        if left is not None:
            points.append(self._orphan(serving, left))
        return points

    def _orphan(self, serving: _Serving, handle: str) -> Orphan:
        return Orphan(serving.lane.thread.id, serving.work.agent.name, handle, self._clock.now())

    def _conflict(self, serving: _Serving, command: Conflicting, before: list[CommitPoint]) -> list[CommitPoint]:
        thread = serving.lane.thread
        for point in before:
            thread = ownership.behind(thread, point)
        if command.adopts:
            log.warning("thread.adopted", agent=serving.work.agent.name, thread=thread.id)
            backend = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
            return [ownership.epoch(thread, self._clock.row_id(), backend, command.handle)]
        if thread.id not in self._warned:
            self._warned = {thread.id: None, **dict(list(self._warned.items())[: _WARNED - 1])}
            log.warning("thread.owner-conflict", agent=serving.work.agent.name, thread=thread.id)
        return [self._orphan(serving, command.handle)] if command.handle is not None else []

    async def _end(
        self, serving: _Serving, end: EndTurn, points: tuple[CommitPoint, ...] = (), reply: Reply | None = None
    ) -> None:
        """C6, with what closes the service call, in one unit; then the final event is shown."""
        work, lane = serving.work, serving.lane
        live = work.live
        now = self._clock.now()
        final = status(apply(live.status.state, end.state), timestamp(now), end.message)
        update = TaskStatusUpdateEvent(task_id=live.id, context_id=live.context_id, status=final, metadata=end.metadata)
        output = live.outputs[-1]
        if work.repeats_answer and end.status == "completed":
            for again in whole(output, live.id, live.context_id):
                self._publish(serving, again)
        goes = lane.running is work and not lane.waiting
        if ownership.goes_back(lane.thread, end.status, work.agent.policies) and work.service_call:
            points = (*points, Rewind(lane.thread.id, work.turn, serving.base, now))

        def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
            finish = Finish(
                task=live.id,
                turn=work.turn,
                thread=lane.thread.id,
                status=end.status,
                failure_class=end.failure,
                state=end.state,
                message=end.message,
                events=row,
                last_event=live.journal.number + 1,
                artifacts=output.artifacts_json(),
                messages=output.messages_json(end.message),
                visible=reply is None,
                now=now,
            )
            return (*points, finish, Release(lane.thread.id, self._holder)) if goes else (*points, finish)

        def stored() -> None:
            output.apply(update)
            live.status = final
            lane.leased = lane.leased and not goes
            for point in points:
                lane.thread = ownership.behind(lane.thread, point)
            if not work.opened.done():
                work.opened.set_result(reply.message if reply is not None else None)

        try:
            await live.journal.commit(unit, encode_event(StreamResponse(status_update=update)), stored)
        except Conflict:
            await self._leave_behind(serving, points)
            raise

    async def _leave_behind(self, serving: _Serving, points: tuple[CommitPoint, ...]) -> None:
        """Somebody else has moved the thread on: what this call led to is nobody's. Source: state-model, scenario 39."""
        orphans = [self._orphan(serving, handle) for handle in ownership.led_to(serving.lane.thread, points)]
        if orphans:
            with suppress(Conflict, LedgerUnavailable):
                await self._ledger.commit(*orphans)


def _facts(work: Work, lane: Lane) -> TurnFacts:
    policies = work.agent.policies
    return TurnFacts(
        work.live.id,
        work.live.context_id,
        ownership.of_thread(lane.thread, work.agent.adapter.ownership),
        direct_replies=work.may_reply,
        tolerate_missing_handle=policies.on_missing_handle == "tolerate" and lane.thread.handle is not None,
        shadow=policies.shadow_history,
        on_owner_conflict=policies.on_owner_conflict,
        rendering=work.rendering,
    )


def _appended(row: EventRow | None) -> tuple[CommitPoint, ...]:
    return () if row is None else (Append(row),)


def _phase(event: AdapterEvent, before: Phase, *, names_first: bool) -> Phase:
    """How far the call is with this event. `names_first`: that it started is said before anything is sent."""
    if not isinstance(event, CallStarted):
        return Phase.EMITTED
    return before if names_first else Phase.STARTED


def _is_cancelled() -> bool:
    """Is it this task that is cancelled, and not one that it waits for?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
