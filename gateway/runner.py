"""Carries out turns: takes the lease, makes the service call, stores and shows what it says, ends the turn.

Law: a turn belongs to the application, not to a request; the only broad `except` is here; every exit ends the turn or
leaves it to recovery, with nothing shown that is not stored.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import structlog
from msgspec.structs import replace

from gateway.agents import Agent
from gateway.clock import Clock, timestamp
from gateway.commits import (
    Accept,
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
    Pending,
    Prepare,
    Release,
    Renew,
    ThreadRecord,
    UnfinishedTurn,
)
from gateway.failures import INTERNAL, TURN_TIMEOUT
from gateway.fanout import Fanout
from gateway.items import HistoryRecord, StorageOwner, UserItem
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
from gateway.ports import Adapter, AdapterError, AdapterEvent, ErrorClass, Ledger, ServiceRequest
from gateway.projection import View, project
from gateway.recovery import settle
from gateway.turn import CloseCall, Command, DropCall, EndTurn, NotePending, Publish, Reply, Turn, TurnFacts
from gateway.watching import Watch
from gateway.wire.v1_0 import encode_event

log = structlog.get_logger("gateway.runner")

_FAULTS = (Exception, KeyboardInterrupt, SystemExit, BaseExceptionGroup)
"""What an adapter may raise: none of it may end the process for all the others."""


Call = Callable[[Adapter, ServiceRequest], AsyncGenerator[AdapterEvent, None]]


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. A lease is renewed `renewals` times before it would run out."""

    length: float = 5.0
    renewals: int = 3


@dataclass(slots=True)
class _Serving:
    """A service call under way."""

    work: Work
    lane: Lane
    machine: Turn
    view: View = field(default_factory=lambda: View((), ()))


class Runner:
    """Runs the turns of this process. Use inside `async with runner.running()`."""

    def __init__(self, ledger: Ledger, fanout: Fanout, clock: Clock, lease: LeaseTimes | None = None) -> None:
        self._ledger = ledger
        self._fanout = fanout
        self._clock = clock
        self._lease = lease or LeaseTimes()
        self._holder = clock.row_id()
        self._lanes: dict[str, Lane] = {}
        self._tasks: dict[str, Work] = {}
        self._expected: dict[str, str] = {}
        self._given_up: set[str] = set()
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
            del self._expected[turn]

    def queued(self, thread: str) -> int:
        """How many turns of this thread arrive, wait or run here."""
        lane = self._lanes.get(thread)
        return list(self._expected.values()).count(thread) + (lane.length if lane is not None else 0)

    def preparation(self, accept: Accept) -> Prepare:
        """C2 for a turn that begins in the very unit that accepts it, where no other runs on its thread."""
        return self._lease_and_call(accept.thread, accept.turn, accept.task, None)

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
            await self._turn(_Serving(work, lane, self._machine(work, lane)))
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
        policies = work.agent.policies
        facts = TurnFacts(
            work.live.id,
            work.live.context_id,
            work.agent.adapter.ownership,
            direct_replies=work.may_reply,
            tolerate_missing_handle=policies.on_missing_handle == "tolerate" and lane.thread.handle is not None,
            shadow=policies.shadow_history,
        )
        return Turn(facts, self._clock)

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
            serving.machine = self._machine(serving.work, serving.lane)
            await self._perform(serving, serving.machine.fail(INTERNAL, correlation_id))

    async def _serve(self, serving: _Serving) -> None:
        if serving.work.cancel_asked:
            raise asyncio.CancelledError
        request = await self._prepare(serving)
        machine = serving.machine
        async with aclosing(self.call(serving.work.agent.adapter, request)) as events:
            async for event in events:
                commands = machine.receive(event)
                if len(commands) == 1 and isinstance(commands[0], Publish):
                    self._publish(serving, commands[0].update)
                elif commands:
                    await self._perform(serving, commands)
                if machine.ended:
                    return
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the adapter ended its call without completing it")

    async def _prepare(self, serving: _Serving) -> ServiceRequest:
        """Takes the lease and records the call. Another process on the thread is waited for, until the turn's timeout."""
        work, lane = serving.work, serving.lane
        ownership = work.agent.adapter.ownership
        while not work.prepared:
            if not lane.current:
                lane.thread, lane.current = await self._reread(lane.thread), True
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
        serving.view = project(ownership, await self._records(work, lane, ownership.owner), work.turn)
        return ServiceRequest(
            handle=lane.thread.handle,
            items=serving.view.items,
            context_id=work.live.context_id,
            task_id=work.live.id,
            principal=work.caller.principal,
            message=work.message,
            first_message=work.first_message,
            state=lane.thread.adapter_state,
            accepted_output_modes=work.accepted_output_modes,
            deadline=self._clock.monotonic() + work.agent.policies.turn_timeout,
        )

    async def _reread(self, known: ThreadRecord) -> ThreadRecord:
        thread = await self._ledger.thread(known.id)
        if thread is None:
            raise Conflict(f"thread {known.id!r} is gone")
        return thread

    async def _records(self, work: Work, lane: Lane, owner: StorageOwner) -> tuple[HistoryRecord, ...]:
        if work.fresh_thread:
            return (HistoryRecord(1, 1, UserItem(work.message), turn_id=work.turn),)
        return await self._ledger.history(lane.thread.id, unsent_only=owner is StorageOwner.BACKEND)

    async def _commit_prepare(self, serving: _Serving) -> None:
        work, lane = serving.work, serving.lane
        now = self._clock.now()
        working = status(apply(work.live.status.state, TaskState.WORKING), timestamp(now))
        final = None
        if work.live.status.state is not TaskState.WORKING:
            update = TaskStatusUpdateEvent(task_id=work.live.id, context_id=work.live.context_id, status=working)
            final = encode_event(StreamResponse(status_update=update))

        prepare = self._lease_and_call(lane.thread, work.turn, work.live.id, None)

        def points(row: EventRow | None) -> tuple[CommitPoint, ...]:
            return (replace(prepare, event=row),)

        def stored() -> None:
            work.live.status = working
            work.service_call, work.prepared = prepare.service_call, True
            lane.thread, lane.leased = replace(lane.thread, generation=lane.thread.generation + 1), True

        await work.live.journal.commit(points, final, stored)

    def _lease_and_call(self, thread: ThreadRecord, turn: str, task: str, event: EventRow | None) -> Prepare:
        return Prepare(
            thread=thread.id,
            generation=thread.generation,
            holder=self._holder,
            lease_until=self._lease_until(),
            turn=turn,
            task=task,
            service_call=self._clock.row_id(),
            round=0,
            attempt=0,
            handle_in=thread.handle,
            now=self._clock.now(),
            event=event,
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
                    serving.work.live.journal.note(Pending(serving.work.service_call, handle))
                case CloseCall():
                    points.append(self._complete(serving, command))
                case DropCall():
                    if serving.work.prepared:
                        points.append(self._drop(serving, command))
                case Reply():
                    reply = command
                case EndTurn():
                    await self._end(serving, command, tuple(points), reply)

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
        )

    def _drop(self, serving: _Serving, command: DropCall) -> Fail:
        return Fail(
            thread=serving.lane.thread.id,
            generation=serving.lane.thread.generation,
            turn=serving.work.turn,
            service_call=serving.work.service_call,
            status=command.status,
            error_class=command.error_class,
            items=command.items,
            now=self._clock.now(),
        )

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
        goes = lane.running is work and not lane.waiting

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
                if isinstance(point, Complete):
                    lane.thread = _moved(lane.thread, point)
            if not work.opened.done():
                work.opened.set_result(reply.message if reply is not None else None)

        await live.journal.commit(unit, encode_event(StreamResponse(status_update=update)), stored)


def _moved(thread: ThreadRecord, point: Complete) -> ThreadRecord:
    """The thread's row behind a completed call."""
    state = point.state if point.state is not None else thread.adapter_state
    return replace(thread, handle=point.handle_out, adapter_state=state, generation=thread.generation + 1)


def _is_cancelled() -> bool:
    """Is it this task that is cancelled, and not one that it waits for?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
