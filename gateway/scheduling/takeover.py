"""Takes over a turn whose process died. The turn waits for its place in this process, then either the stream of its
service call is read again, or its next service call is made. Law: the turn and its log stay the same; one process takes
the turn, and sends the backend nothing before it has the turn."""

from collections.abc import Iterator, Sequence

import msgspec
import structlog
from msgspec.structs import replace

from gateway.core import commit_points, ownership
from gateway.core.agents import Agent
from gateway.core.failures import OWNER_CONFLICT
from gateway.core.replay import MakeCall, ResumeCall, resume_plan, shown_answer, shown_before
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.runtime import Runtime
from gateway.engine.turn_context import TurnFailed
from gateway.engine.turn_run import LiveTask, ResumePoint, StoredTask, TurnRun
from gateway.ledger.calls import RESTARTED, LatestCall
from gateway.ledger.events import Update
from gateway.ledger.leases import Claim, TakeOver, UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.threads import ThreadRecord
from gateway.ledger.traces import RecordedTurn
from gateway.ledger.turns import Preferences
from gateway.scheduling.settle import is_first

log = structlog.get_logger("gateway.scheduling.takeover")


async def take_over_turn(
    unfinished: UnfinishedTurn, agent: Agent | None, runtime: Runtime, fanout: Fanout
) -> tuple[TurnRun, ThreadRecord] | None:
    """The turn, and its thread after the takeover. None when the turn cannot continue, or when another process has
    taken it.

    The turn gets the fanout's hold on its task. Raises: TurnFailed when the agent's settings do not let the thread
    continue; LedgerUnavailable, CorruptRecord.
    """
    # If this process itself has lost the turn, a fault in this process was the reason, and the fault would occur again.
    makes_calls = unfinished.process != runtime.holder and not (unfinished.cancel_asked and unfinished.expired)
    if agent is None or not (unfinished.expired or (unfinished.waits and makes_calls)):
        return None
    thread = await runtime.ledger.thread(unfinished.thread)
    if thread is None:
        return None
    if not ownership.can_serve(agent.adapter.ownership, thread):
        raise TurnFailed(OWNER_CONFLICT, f"the thread began with ({thread.owner}, {thread.handle_kind})")
    takeover = _Takeover(unfinished, agent, thread, runtime, fanout)
    return await (takeover.of_queued() if unfinished.waits else takeover.of_begun(makes_calls=makes_calls))


class _Takeover(msgspec.Struct, frozen=True):
    unfinished: UnfinishedTurn
    agent: Agent
    thread: ThreadRecord
    runtime: Runtime
    fanout: Fanout

    async def of_queued(self) -> tuple[TurnRun, ThreadRecord] | None:
        """Nothing of the turn was sent: it takes its place here."""
        unfinished, runtime = self.unfinished, self.runtime
        stored, preferences, recorded = await self._read()
        claim = Claim(unfinished.turn, unfinished.process, runtime.holder, runtime.clock.now())
        if not await is_first(runtime.ledger, runtime.heartbeat(), claim):
            return None
        log.info("turn.taken-up", agent=self.agent.name, task=unfinished.task.id, turn=unfinished.turn)
        return self._run(stored, preferences, recorded), self.thread

    async def of_begun(self, *, makes_calls: bool) -> tuple[TurnRun, ThreadRecord] | None:
        """`makes_calls` says that service calls may be made. Without it, the turn may only read the stream of its
        service call again."""
        unfinished, runtime = self.unfinished, self.runtime
        call = await runtime.ledger.latest_call(unfinished.turn)
        open_tools = bool(await runtime.ledger.open_tool_calls(unfinished.turn))

        def find(updates: Sequence[Update]) -> ResumeCall | MakeCall | None:
            way = resume_plan(self.agent, self.thread, call, updates, open_tools=open_tools)
            return None if isinstance(way, MakeCall) and not makes_calls else way

        # The log is not read for a turn that could not continue even with an empty log: at a start there may be
        # thousands of such turns.
        if call is None or find(()) is None:
            return None
        stored, preferences, recorded = await self._read()
        way = find(stored.updates)
        if way is None:
            return None
        taken = replace(self.thread, generation=unfinished.generation + 1)
        if not await is_first(runtime.ledger, *self._take(way, call, taken)):
            return None
        latest = await runtime.ledger.latest_events((unfinished.task.id,))
        if latest[unfinished.task.id] != stored.number:
            # The process before has shown more between the read and the takeover.
            stored, preferences, _ = await self._read()
            if find(stored.updates) is None:
                return None  # It ends with the lease that was just taken.
        run = self._run(stored, preferences, recorded)
        if isinstance(way, ResumeCall):
            run.begin_call(call.id)
            before = shown_before(stored.outputs[-1], stored.updates, unfinished.turn, call.round)
            point = ResumePoint(call.round, call.attempt, way.names, before, unnamed=way.names is None)
        else:
            point = ResumePoint(way.round, way.attempt, None, shown_answer(stored.outputs[-1], unfinished.turn))
        run.resume_point, run.base, run.to_be_cancelled = point, call.base, unfinished.cancel_asked
        log.info("turn.taken-over", agent=self.agent.name, task=unfinished.task.id, turn=unfinished.turn)
        return run, taken

    def _take(self, way: ResumeCall | MakeCall, call: LatestCall, taken: ThreadRecord) -> Iterator[CommitPoint]:
        turn, generation, runtime = self.unfinished.turn, self.unfinished.generation, self.runtime
        now = runtime.clock.now()
        # Listening may be what killed its process; calls that are made again have a count of their own.
        tries = self.unfinished.tries + 1 if isinstance(way, ResumeCall) else 0
        yield TakeOver(taken.id, generation, runtime.holder, runtime.lease_until(), turn, now, tries)
        if isinstance(way, MakeCall) and way.instead_of is not None:
            # The end of that call stays unknown. Its error class is what counts such calls.
            yield commit_points.fail(taken, turn, call.id, RESTARTED, now, before=call.status)

    async def _read(self) -> tuple[StoredTask, Preferences, RecordedTurn | None]:
        ledger, turn = self.runtime.ledger, self.unfinished.turn
        stored = await StoredTask.read(ledger, self.unfinished.task)
        recorded = await ledger.recorded_turn(turn) if self.runtime.observer.traces else None
        return stored, await ledger.preferences(turn), recorded

    def _run(self, stored: StoredTask, preferences: Preferences, recorded: RecordedTurn | None) -> TurnRun:
        task, unfinished = self.unfinished.task, self.unfinished
        channel = self.fanout.hold(task.id)
        journal = Journal(self.runtime.ledger, channel, task.id, stored.number, self.runtime.holder)
        live = LiveTask.stored(task, stored.outputs, journal)
        run = TurnRun(unfinished.turn, self.agent, unfinished.caller, live, preferences, None, not task.visible)
        run.go_on_from(recorded)
        return run
