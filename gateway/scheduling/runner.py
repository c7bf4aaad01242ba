"""Runs the turns of this process: one after another on each thread, with leases that are kept as long as they run.

Law: a turn belongs to the application, not to a request; what cannot be stored any more is left to recovery.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import structlog
from msgspec.structs import replace

from gateway.a2a.model import TERMINAL
from gateway.core.agents import Agent
from gateway.core.failures import CONTEXT_STUCK
from gateway.engine.fanout import Fanout
from gateway.engine.other_processes import LogTail
from gateway.engine.preparation import Parked
from gateway.engine.runtime import Call, Pace, Runtime
from gateway.engine.turn_context import TurnFailed
from gateway.engine.turn_run import ThreadQueue, TurnRun
from gateway.engine.turn_runner import TurnRunner
from gateway.foundation.clock import Clock
from gateway.foundation.clock_steps import ClockSteps
from gateway.foundation.in_flight import InFlight
from gateway.ledger.calls import RESTARTED, Prepare
from gateway.ledger.errors import Conflict, CorruptRecord, LedgerUnavailable
from gateway.ledger.leases import Heartbeat, Release, Renew, UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.turns import Accept
from gateway.scheduling.leases import LeaseTimes
from gateway.scheduling.orphans import OrphanScan, settle_all
from gateway.scheduling.quarantine import Quarantine, is_last
from gateway.scheduling.queues import ThreadQueues
from gateway.scheduling.settle import settle
from gateway.scheduling.takeover import take_over_turn

log = structlog.get_logger("gateway.scheduling.runner")


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
        self._holder = clock.row_id()
        self._means = Runtime(ledger, clock, self._holder, self._lease.length, pace or Pace())
        self._lanes = ThreadQueues()
        self.retired = False
        self._tasks: dict[str, TurnRun] = {}
        self._expected: dict[str, str] = {}
        self.in_flight = InFlight()
        """To be entered with all that may start a turn."""
        self._given_up: set[str] = set()
        self._quarantine = Quarantine(ledger, clock, self._lease.length)
        self._leftovers = OrphanScan(self._means, self._quarantine, self._own, self.heartbeat, self._lease.round)
        self.log_tail = LogTail(ledger)
        self._group: asyncio.TaskGroup | None = None
        self._agent: Callable[[str], Agent | None] = lambda _: None

    def use_agents(self, agent: Callable[[str], Agent | None]) -> None:
        """Turns that a dead process left can go on here, with the agent that has its name now."""
        self._agent = agent

    def retire(self) -> None:
        """The process is about to go: what others leave is left to those that stay."""
        self.retired = True

    def wrap_calls(self, call: Call) -> None:
        """Makes every call to a backend through this."""
        self._means.call = call

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                settled, serving = asyncio.Event(), asyncio.Event()
                beside = (self._settling(settled, serving), self._upkeep(), self.log_tail.run())
                upkeep = [group.create_task(work) for work in beside]
                try:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._lease.start):
                            await settled.wait()
                    serving.set()
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

    def run_of(self, task: str) -> TurnRun | None:
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

    def heartbeat(self) -> Heartbeat:
        """To be stored with a turn that has to wait: it is nobody's leftover as long as this process lives."""
        return Heartbeat(self._holder, self._means.lease_until(), self._clock.now())

    def runs_in(self, caller: Caller, context_id: str) -> list[TurnRun]:
        """The turns of this context that wait or run here, in the order in which they came."""
        return [work for work in self._tasks.values() if work.caller == caller and work.live.context_id == context_id]

    async def idle(self, agents: Iterable[Agent] | None = None) -> None:
        """Returns when no turn (of these agents) waits or runs here."""
        chosen = None if agents is None else {id(agent) for agent in agents}
        while busy := [work.done for work in self._tasks.values() if chosen is None or id(work.agent) in chosen]:
            await asyncio.wait(busy)

    async def unused(self, agents: Iterable[Agent]) -> None:
        """Returns when no turn of these agents waits or runs here, nor arrives. Those that come now have other agents."""
        await self.in_flight.wait_current()
        await self.idle(agents)

    async def drained(self) -> None:
        """Returns when nothing that arrived can start a turn any more, and none waits or runs. Nothing new may arrive."""
        await self.in_flight.wait_zero()
        await self.idle()

    @contextmanager
    def reserved(self, turn: str, thread: str) -> Iterator[None]:
        """While a turn is being accepted it is nobody's leftover, and counts as queued."""
        self._expected[turn] = thread
        try:
            yield
        finally:
            self._expected.pop(turn, None)

    def queued(self, thread: str) -> int:
        """How many turns of this thread arrive, wait or run here."""
        return list(self._expected.values()).count(thread) + sum(lane.length for lane in self._lanes.of(thread))

    def preparation(self, accept: Accept) -> Prepare:
        """C2 for a turn that begins in the very unit that accepts it, where no other runs on its thread."""
        return self._means.prepare(accept.thread, accept.turn, accept.task)

    def start(self, work: TurnRun, thread: ThreadRecord) -> None:
        """Queues an accepted turn behind the others of its thread; takes over the hold on the task's channel."""
        lane = self._lanes.first(thread.id)
        if lane is None:
            # Who did not take the lease with what was read may have read it before the thread's last turn ended.
            lane = self._lanes.add(ThreadQueue(thread, current=work.prepared or work.fresh_thread))
        if work.prepared:
            lane.thread, lane.leased = replace(lane.thread, generation=lane.thread.generation + 1), True
        self._tasks[work.live.id] = work
        lane.waiting.append(work)
        lane.parked = False
        self._expected.pop(work.turn, None)
        # Behind the answer to its caller, who waits for nothing else.
        asyncio.get_running_loop().call_soon(self._next, lane)

    def resume(self, work: TurnRun, thread: ThreadRecord) -> None:
        """Takes up a turn that waited for its caller, before the others of its thread, and the hold on its task's channel."""
        lane = self._lanes.first(thread.id) or self._lanes.add(ThreadQueue(thread, current=False))
        self._tasks[work.live.id] = work
        lane.waiting.appendleft(work)
        lane.parked = False
        self._next(lane)

    def interrupt(self, work: TurnRun, thread: str) -> None:
        """Asks the turns before this one to end, so that it need not wait for what they do."""
        for lane in self._lanes.of(thread):
            for other in (*reversed(lane.waiting), *([lane.running] if lane.running else ())):
                if other is not work:
                    self.request_cancel(other)

    async def cancel(self, work: TurnRun) -> None:
        """Asks the turn to end; returns when it has ended, one way or another."""
        self.request_cancel(work)
        await work.ended()

    def request_cancel(self, work: TurnRun) -> None:
        """Asks the turn to end."""
        if not work.cancel_asked:
            work.cancel_asked = True
            if work.task is None:
                self._take_out(work)
            elif work.begun:
                work.task.cancel()

    def _take_out(self, work: TurnRun) -> None:
        """A turn that waits is ended beside the one that runs; one that is about to begin, when it does."""
        lane = next((lane for lane in self._lanes if work in lane.waiting), None)
        if lane is None:
            return  # the process stops, and begins nothing more
        self._next(lane)
        if lane.running is not work:
            lane.waiting.remove(work)
            self._set_off(work, lane)

    # --- lanes and leases

    def _next(self, lane: ThreadQueue) -> None:
        if lane.running is None and lane.waiting and not lane.parked:
            lane.running = lane.waiting.popleft()
            self._set_off(lane.running, lane)

    def _set_off(self, work: TurnRun, lane: ThreadQueue) -> None:
        if self._group is not None:
            work.task = self._group.create_task(self._run(lane, work))

    def _leave(self, work: TurnRun, lane: ThreadQueue) -> None:
        if lane.running is work:
            lane.running = None
        self._dismiss(work)
        self._next(lane)
        if lane.running is None and not lane.waiting and lane in lane.beside:
            last = self._lanes.remove(lane)
            if lane.leased and last:
                self._given_up.add(lane.thread.id)

    def _dismiss(self, work: TurnRun) -> None:
        del self._tasks[work.live.id]
        if work.live.status.state in TERMINAL:
            self._fanout.close(work.live.id)
        self._fanout.release(work.live.id)
        if not work.opened.done():
            work.opened.set_result(None)
        work.done.set_result(None)

    async def _upkeep(self) -> None:
        """Renews the leases held here, whatever else there is to do, for as long as this process runs."""
        took = 0.0
        while True:
            await asyncio.sleep(self._lease.rest(took))
            began = self._clock.monotonic()
            try:
                await self._keep_leases()
                if not self._lease.rest(self._clock.monotonic() - began):
                    await self._keep_leases()
                await self._heed()
                await self._unpark()
            except LedgerUnavailable as error:
                log.warning("upkeep.skipped", error=str(error))
            took = self._clock.monotonic() - began

    async def _settling(self, settled: asyncio.Event, serving: asyncio.Event) -> None:
        """Goes on with what dead processes left, or ends it, for as long as this one runs; `settled` is set behind a round.

        Raises: LedgerUnavailable before it is `serving`.
        """
        steps = ClockSteps(self._clock, self._lease.round)
        while True:
            try:
                if not (steps.recent() or self.retired):
                    await settle_all(await self._leftovers.to_try(), partial(self._settle, {}))
            except LedgerUnavailable as error:
                if not serving.is_set():
                    raise
                log.warning("upkeep.skipped", error=str(error))
            settled.set()
            await asyncio.sleep(self._lease.round)

    async def _keep_leases(self) -> None:
        """Those of idle threads that no turn gave back go now: what is left there is settled next."""
        threads = self._lanes.threads
        idle = self._given_up.difference(threads)
        points: list[CommitPoint] = [Release(thread, self._holder) for thread in sorted(idle)]
        if threads:
            points.append(Renew(threads, self._holder, self._means.lease_until()))
        if any(not work.prepared for work in self._tasks.values()):
            points.append(self.heartbeat())
        if points:
            await self._ledger.commit(*points)
        self._given_up -= idle
        self._quarantine.acquit(self._own())

    async def _unpark(self) -> None:
        """What a lane waited for may have ended elsewhere."""
        for lane in [lane for lane in self._lanes if lane.parked]:
            if await self._ledger.waiting_task(lane.thread.id) is None:
                lane.parked = False
                self._next(lane)

    async def _heed(self) -> None:
        """Another process has been asked to cancel what runs here."""
        if self._tasks:
            for task in await self._ledger.cancel_requests(self._holder):
                work = self._tasks.get(task)
                if work is not None:
                    self.request_cancel(work)

    def _own(self) -> set[str]:
        return {work.turn for work in self._tasks.values()} | self._expected.keys()

    async def _settle(self, begun: dict[str, ThreadQueue], leftover: UnfinishedTurn) -> None:
        """`begun`: the lanes of this round, by thread. Raises: LedgerUnavailable, CorruptRecord."""
        if not (self.retired or leftover.turn in self._expected or self._runs(leftover)):
            with self.in_flight.now:
                await self._quarantine.attempt(leftover, partial(self._try, begun, leftover))

    async def _try(self, begun: dict[str, ThreadQueue], leftover: UnfinishedTurn) -> bool:
        """It goes on here, or ends; False: another process was faster. Raises: LedgerUnavailable, CorruptRecord."""
        agent, failure = self._agent(leftover.task.agent), RESTARTED
        blocked, last = leftover.turn in self._quarantine.behind, is_last(leftover)
        try:
            taken = None if blocked or last else await take_over_turn(leftover, agent, self._means, self._fanout)
        except TurnFailed as error:
            log.warning("turn.not-taken-over", task=leftover.task.id, failure=error.failure, detail=error.detail)
            taken, failure = None, error.failure
        except CorruptRecord as error:
            log.error("turn.unreadable", task=leftover.task.id, turn=leftover.turn, error=str(error))
            taken = None
        if taken is not None:
            self._quarantine.goes_on(leftover, taken[0])
            self._go_on(*taken, begun, asked_to_end=leftover.cancel_asked)
            return True
        policies = None if agent is None else agent.policies
        failure = CONTEXT_STUCK if blocked else failure
        return await settle(leftover, self._ledger, self._fanout, self._clock, policies, failure, bare=last)

    def _go_on(self, work: TurnRun, thread: ThreadRecord, begun: dict[str, ThreadQueue], *, asked_to_end: bool) -> None:
        """Behind the turns that were taken up just before, and beside those that wait here already: they come later."""
        lane = begun.get(thread.id)
        if lane is None:
            lane = begun[thread.id] = self._lanes.add(ThreadQueue(thread, current=work.rejoined is not None))
            lane.leased = work.rejoined is not None
        self._tasks[work.live.id] = work
        lane.waiting.append(work)
        if asked_to_end and work.rejoined is None:
            self.request_cancel(work)
        else:
            self._next(lane)

    def _runs(self, leftover: UnfinishedTurn) -> bool:
        work = self._tasks.get(leftover.task.id)
        return work is not None and work.turn == leftover.turn

    # --- one turn

    async def _run(self, lane: ThreadQueue, work: TurnRun) -> None:
        work.begun = True
        parked = False
        try:
            await TurnRunner(self._means, work, lane).run()
        except Parked:
            parked = True
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
            if parked:
                self._park(work, lane)
            else:
                self._leave(work, lane)

    def _park(self, work: TurnRun, lane: ThreadQueue) -> None:
        work.task, work.begun = None, False
        # The turn that waited may be there by now, to go on before all others.
        behind = int(bool(lane.waiting) and bool(lane.waiting[0].resumed))
        lane.running, lane.parked, lane.current = None, not behind, False
        lane.waiting.insert(behind, work)
        if work.cancel_asked:
            self._take_out(work)
        self._next(lane)
