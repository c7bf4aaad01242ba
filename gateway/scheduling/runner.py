"""Runs the turns of this process: one after another on each thread, under leases that are kept as long as they run.

Law: a turn belongs to the application, not to a request; a turn whose end cannot be stored is left to recovery.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress

import structlog

from gateway.a2a.errors import A2AError, Busy
from gateway.a2a.model import INTERRUPTED, TERMINAL
from gateway.core.agents import Agent
from gateway.engine.adapter_secrets import AdapterSecrets
from gateway.engine.fanout import Fanout
from gateway.engine.other_processes import LogTail
from gateway.engine.preparation import Parked
from gateway.engine.runtime import Pace, Runtime
from gateway.engine.turn_run import ThreadQueue, TurnRun
from gateway.engine.turn_runner import TurnRunner
from gateway.engine.turn_spans import TurnSpans
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import InFlight
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.leases import RequestCancel, UnfinishedTurn
from gateway.ledger.port import Ledger
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ports.observer import SILENT, Observer, TurnLine
from gateway.scheduling.leases import LeaseTimes, LeaseUpkeep, ThreadQueues
from gateway.scheduling.orphans import OrphanRecovery, Quarantine

log = structlog.get_logger("gateway.scheduling.runner")


class Runner:
    """The turns of this process. Use inside `async with runner.running()`."""

    def __init__(
        self,
        ledger: Ledger,
        fanout: Fanout,
        clock: Clock,
        secrets: AdapterSecrets,
        lease: LeaseTimes | None = None,
        pace: Pace | None = None,
        observer: Observer = SILENT,
    ) -> None:
        self._fanout = fanout
        self._lease = lease = lease or LeaseTimes()
        self.runtime = runtime = Runtime(ledger, clock, clock.row_id(), lease.length, pace or Pace(), secrets, observer)
        self._queues = ThreadQueues()
        self._runs: dict[str, TurnRun] = {}
        self._reserved: dict[str, str] = {}
        self.retired = False
        """The process is about to end: turns of dead processes are left to other processes."""
        self.in_flight = InFlight()
        """To be entered with every request that may start a turn."""
        self.find_agent: Callable[[str], Agent | None] = lambda _: None
        """The agent that has this name now. It continues the turns that a dead process left."""
        quarantine = Quarantine(ledger, clock, lease.length)
        self._upkeep = LeaseUpkeep(
            runtime,
            lease,
            self._queues,
            self._runs,
            cancel=self.request_cancel,
            begin_next=self._begin_next,
            renewed=lambda: quarantine.acquit(self.own_turns()),
        )
        self._recovery = OrphanRecovery(runtime, fanout, quarantine, self, lease.round)
        self.log_tail = LogTail(ledger, runtime.changes)
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                recovered, serving = asyncio.Event(), asyncio.Event()
                loops = [self.runtime.changes.run(), self.log_tail.run(), self._upkeep.run(), self._upkeep.listen()]
                loops.append(self._recovery.run(recovered, serving))
                tasks = [group.create_task(loop) for loop in loops]
                try:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._lease.start):
                            await recovered.wait()
                    serving.set()
                    yield
                finally:
                    tasks += [run.task for run in self._runs.values() if run.task is not None]
                    for task in tasks:
                        task.cancel()
                    self._group = None
        finally:
            for run in list(self._runs.values()):
                self._dismiss(run)

    # --- what operations read

    def run_of(self, task: str) -> TurnRun | None:
        """The turn of this task that waits or runs here."""
        return self._runs.get(task)

    def runs_in(self, caller: Caller, context_id: str) -> list[TurnRun]:
        """The turns of this context that wait or run here, in the order in which they came."""
        return [run for run in self._runs.values() if run.caller == caller and run.live.context_id == context_id]

    def own_turns(self) -> set[str]:
        """The turns that are being accepted, wait or run here."""
        return {run.turn for run in self._runs.values()} | self._reserved.keys()

    def owns(self, unfinished: UnfinishedTurn) -> bool:
        run = self._runs.get(unfinished.task.id)
        return unfinished.turn in self._reserved or (run is not None and run.turn == unfinished.turn)

    def open_turns(self) -> Iterator[tuple[tuple[str, str], float]]:
        """How many turns wait or run here, of each agent and state."""
        yield from Counter(
            (run.agent.name, "running" if run.entered else "queued") for run in self._runs.values()
        ).items()

    def leases(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """How many leases are held here."""
        yield (), len({queue.thread.id for queue in self._queues if queue.leased})

    def queued(self, thread: str) -> int:
        """How many turns of this thread are being accepted, wait or run here."""
        return list(self._reserved.values()).count(thread) + sum(queue.length for queue in self._queues.of(thread))

    @property
    def patience(self) -> float:
        """Seconds after which another process has seen a request to it, or has been found dead."""
        return 2 * self._lease.length

    async def idle(self, agents: Iterable[Agent] | None = None) -> None:
        """Returns when no turn (of these agents) waits or runs here."""
        chosen = None if agents is None else {id(agent) for agent in agents}
        while busy := [run.done for run in self._runs.values() if chosen is None or id(run.agent) in chosen]:
            await asyncio.wait(busy)

    async def unused(self, agents: Iterable[Agent]) -> None:
        """Returns when no turn of these agents waits or runs here, or is being accepted. New turns have other agents."""
        await self.in_flight.wait_current()
        await self.idle(agents)

    async def drained(self) -> None:
        """Returns when no request in flight can start a turn, and no turn waits or runs. No new request may come."""
        await self.in_flight.wait_zero()
        await self.idle()

    # --- what operations change

    def reserve(self, turn: str, thread: str) -> None:
        """The turn is being accepted: until `end_reservation` it counts as queued, and no process takes it over."""
        self._reserved[turn] = thread

    def end_reservation(self, turn: str) -> None:
        """Nothing where the turn has started."""
        self._reserved.pop(turn, None)

    def start(self, run: TurnRun, thread: ThreadRecord) -> None:
        """Queues an accepted turn after the others of its thread; takes the hold on the task's channel."""
        queue = self._queues.first(thread.id)
        if queue is None:
            # Without C2 in the same unit, `thread` may have been read before the last turn of the thread ended.
            queue = self._queues.add(ThreadQueue(thread, current=run.prepared or run.fresh_thread))
        if run.prepared:
            queue.take_lease(queue.thread)
        self._runs[run.live.id] = run
        queue.waiting.append(run)
        queue.parked = None
        self._reserved.pop(run.turn, None)
        # This happens after the answer to the caller, because the caller does not wait for it.
        asyncio.get_running_loop().call_soon(self._begin_next, queue)

    def resume(self, run: TurnRun, thread: ThreadRecord) -> None:
        """Queues a paused turn before the others of its thread; takes the hold on the task's channel."""
        queue = self._queues.first(thread.id) or self._queues.add(ThreadQueue(thread, current=False))
        self._runs[run.live.id] = run
        queue.waiting.appendleft(run)
        queue.parked = None
        self._begin_next(queue)

    def adopt(self, run: TurnRun, thread: ThreadRecord, queues: dict[str, ThreadQueue], *, cancel: bool) -> None:
        """Queues a turn that was taken over. It follows the turns of the same recovery round (`queues`, by thread), and
        precedes the turns that already wait in this process, which are in another queue."""
        queue, under_way = queues.get(thread.id), run.resume_point is not None
        if queue is None:
            queue = self._queues.add(ThreadQueue(thread, current=under_way, leased=under_way))
            queues[thread.id] = queue
        self._runs[run.live.id] = run
        queue.waiting.append(run)
        if cancel and not under_way:
            self.request_cancel(run)
        else:
            self._begin_next(queue)

    def interrupt(self, run: TurnRun, thread: str) -> None:
        """Requests the end of the turns before this one."""
        for queue in self._queues.of(thread):
            for other in (*reversed(queue.waiting), *([queue.running] if queue.running else ())):
                if other is not run:
                    self.request_cancel(other)

    def cancel(self, run: TurnRun) -> None:
        """The caller wants the turn to end: should this process die before that is stored, the turn is cancelled all the
        same."""
        if not run.cancel_requested:
            self.runtime.ledger.submit((RequestCancel((run.turn,)),), lambda _: None)
        self.request_cancel(run)

    def request_cancel(self, run: TurnRun) -> None:
        if not run.cancel_requested:
            run.cancel_requested = True
            if run.task is None:
                self._end_waiting(run)
            elif run.entered:
                run.task.cancel()

    def _end_waiting(self, run: TurnRun) -> None:
        """Ends a waiting turn at once, also while another turn of the thread runs. A turn that is about to begin is
        ended when it begins."""
        queue = next((queue for queue in self._queues if run in queue.waiting), None)
        if queue is None:
            return  # the process stops, and begins no more turns
        self._begin_next(queue)
        if queue.running is not run:
            queue.waiting.remove(run)
            self._launch(run, queue)

    # --- one turn

    def _begin_next(self, queue: ThreadQueue) -> None:
        if queue.running is None and queue.waiting and queue.parked is None:
            queue.running = queue.waiting.popleft()
            self._launch(queue.running, queue)

    def _launch(self, run: TurnRun, queue: ThreadQueue) -> None:
        if self._group is not None:
            run.task = self._group.create_task(self._run(run, queue))

    async def _run(self, run: TurnRun, queue: ThreadQueue) -> None:
        run.entered = True
        outcome, run.began = "", self.runtime.clock.monotonic()
        if self.runtime.observer.traces:
            run.spans = TurnSpans(self.runtime, run)
        parked: Parked | None = None
        try:
            await TurnRunner(self.runtime, run, queue).run()
        except Parked as error:
            parked = error
        except Conflict as error:
            outcome = "lost"
            log.warning("turn.lost", task=run.live.id, turn=run.turn, error=str(error))
            self._give_up(run, queue, error, _gone_on())
        except LedgerUnavailable as error:
            outcome = "not-recorded"
            log.error("turn.not-recorded", task=run.live.id, turn=run.turn, error=str(error))
            self._give_up(run, queue, error, error)
        except Exception as error:  # recovery ends this turn, and the other turns continue
            outcome = "not-recorded"
            log.exception("turn.not-recorded", task=run.live.id, turn=run.turn)
            self._give_up(run, queue, error, error)
        finally:
            if parked is not None:
                self._park(run, queue, parked.task)
            else:
                if run.spans is not None:
                    run.spans.end()
                if self.runtime.observer is not SILENT:
                    self.runtime.observer.turn_ended(
                        _turn_line(run, outcome, self.runtime.clock.monotonic() - run.began)
                    )
                self._remove(run, queue)

    def _give_up(self, run: TurnRun, queue: ThreadQueue, fault: Exception, told: Exception) -> None:
        """The turn has no end that is stored here; `told` is what its streams end with."""
        queue.current, run.fault = False, fault
        drop_tracebacks(fault)
        self._fanout.close(run.live.id, told)

    def _park(self, run: TurnRun, queue: ThreadQueue, behind: str) -> None:
        run.task, run.entered = None, False
        queue.park(run, behind)
        if run.cancel_requested:
            self._end_waiting(run)
        self._begin_next(queue)

    def _remove(self, run: TurnRun, queue: ThreadQueue) -> None:
        if queue.running is run:
            queue.running = None
        self._dismiss(run)
        self._begin_next(queue)
        if queue.running is None and not queue.waiting and queue in queue.siblings:
            last = self._queues.remove(queue)
            if queue.leased and last:
                if run.live.status.state in TERMINAL:
                    self._upkeep.give_back(queue.thread.id)
                else:
                    self._upkeep.unused.add(queue.thread.id)

    def _dismiss(self, run: TurnRun) -> None:
        del self._runs[run.live.id]
        if run.live.status.state in TERMINAL:
            self._fanout.close(run.live.id)
        self._fanout.release(run.live.id)
        run.leave()
        run.done.set_result(None)


def _gone_on() -> A2AError:
    return Busy(
        "The turn of this stream is not run here any more; resume the stream after the last event that has arrived.",
        retry_after=1,
    )


def _turn_line(run: TurnRun, outcome: str, seconds: float) -> TurnLine:
    """`outcome` is empty where the state of the task tells it."""
    state, usage = run.live.status.state, run.live.outputs[-1].usage
    ended = state in TERMINAL or state in INTERRUPTED
    line = TurnLine(
        agent=run.agent.name,
        context=run.live.context_id,
        task=run.live.id,
        turn=run.turn,
        principal=run.caller.principal,
        outcome=outcome or (state.removeprefix("TASK_STATE_").lower().replace("_", "-") if ended else "left"),
        ms=int(seconds * 10_000 + 0.5) / 10,
    )
    if run.spans is not None:
        line.trace_id, line.span_id = run.spans.place.trace_id, run.spans.place.span_id
    for name in usage.__struct_fields__:
        count = getattr(usage, name)
        if count is not None:
            setattr(line, name, count)
    return line
