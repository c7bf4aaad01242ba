"""Ends tasks that do not run: a task that waits for its caller, and a turn whose process died.

Law: such a turn ends with a reason that the caller can act on, and with everything that its log has shown; a turn with calls
that the caller allowed is paused instead, and does them later.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec
import structlog

from gateway.a2a import tool_calls
from gateway.a2a.model import Message, Part, Role, TaskState
from gateway.a2a.tool_calls import HIDDEN, CallFacts, Phase, Place, Rendering, Update, rendering
from gateway.core import commit_points, ownership
from gateway.core.agents import AgentPolicies
from gateway.core.failures import TOOL_OUTCOME_UNKNOWN, safe_text
from gateway.core.task_record import TurnOutput, calls_without_end, replay_events, shown_calls, usage_metadata
from gateway.core.tools import tool_call
from gateway.core.tools.tool_call import Settled
from gateway.core.turn.commands import EndTool, EndTurn
from gateway.engine import paused_turn
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.turn_run import status, status_update
from gateway.foundation.clock import Clock, non_decreasing, timestamp
from gateway.ledger.calls import RESTARTED, NewItem
from gateway.ledger.errors import Conflict, CorruptRecord
from gateway.ledger.events import entry
from gateway.ledger.leases import Fence, UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ledger.tasks import EventRow, TurnRecord
from gateway.ledger.threads import MarkUnsynced, RevertIfDisplaced, Rewind, ThreadRecord, Withdraw
from gateway.ledger.tool_calls import ToolCallRecord, ToolEnds
from gateway.ledger.turns import Suspend
from gateway.ports.conversation import OutputItem, StorageOwner

log = structlog.get_logger("gateway.scheduling.settle")


async def is_first(ledger: Ledger, *points: CommitPoint) -> bool:
    """Stores the points. False, and nothing is stored, where another process was faster."""
    try:
        await ledger.commit(*points)
    except Conflict:
        return False
    return True


async def store_end(
    task: str,
    number: int,
    events: Sequence[bytes],
    unit: Callable[[EventRow | None, int], tuple[CommitPoint, ...]],
    final: bytes,
    ledger: Ledger,
    fanout: Fanout,
) -> bool:
    """Stores the end of a task that does not run, in one unit: the `events` after event `number`, then the `final` event.

    `unit` is called with the row of the events and the number of the last event. Returns False where another process was
    faster.
    """
    journal = Journal(ledger, fanout.hold(task), task, number)
    last = number + len(events) + 1
    try:
        for event in events:
            journal.add(event)
        await journal.commit(lambda row: unit(row, last), final, stored=lambda: fanout.close(task))
    except Conflict:
        return False
    finally:
        fanout.release(task)
    return True


async def settle(
    unfinished: UnfinishedTurn,
    ledger: Ledger,
    fanout: Fanout,
    clock: Clock,
    policies: AgentPolicies | None = None,
    failure: str = RESTARTED,
    *,
    bare: bool = False,
) -> bool:
    """Ends the turn as FAILED, or as CANCELED where that was asked for. If its caller has allowed calls and has requested no
    cancel, the turn is paused with these calls instead. Returns False without a change when another process was faster, or
    when the turn's own process is alive again.

    `policies` are the policies of the turn's agent, or None when the agent no longer exists. `failure` is the reason
    why the turn does not continue. `bare` says that the turn could not be ended otherwise; its messages and artifacts
    are then not read, and are not in its record.

    Raises: LedgerUnavailable, CorruptRecord.
    """
    task = unfinished.task
    turns = () if bare else (await ledger.turns((task.id,), artifacts=False))[task.id]
    calls = await ledger.open_tool_calls(unfinished.turn)
    fence = (Fence(unfinished.thread, unfinished.generation, clock.now()),) if unfinished.expired else ()
    clock = non_decreasing(clock, task.status_at)
    if not (bare or unfinished.cancel_asked) and _may_go_on(calls, policies):
        pause = Suspend(task.id, unfinished.turn, unfinished.thread, TaskState.WORKING, None, None, clock.now())
        return await is_first(ledger, *fence, pause)
    if any(call.status is ToolCallStatus.RUNNING for call in calls):
        failure = TOOL_OUTCOME_UNKNOWN
    settlement = _Settlement(unfinished, ledger, clock, policies, calls, fence, bare)
    return await settlement.end(turns, failure, fanout)


def _may_go_on(calls: tuple[ToolCallRecord, ...], policies: AgentPolicies | None) -> bool:
    """Whether the turn may continue. Calls that were allowed and have not begun may still run; idempotent calls that
    ran may run again, with the same key.

    No call runs again while another call of the turn waits for a caller that was not asked yet, because the question
    was lost with the process. Source: docs/state-model.md, scenarios 50, 116 and 120.
    """
    ran = [call for call in calls if call.status is ToolCallStatus.RUNNING]
    if not ran:
        states = {call.status for call in calls}
        return ToolCallStatus.APPROVED in states and ToolCallStatus.PENDING_CONSENT not in states
    asks = (ToolCallStatus.PENDING_APPROVAL, ToolCallStatus.PENDING_CONSENT)
    waits = any(call.status in asks or call.executor == "client" for call in calls)
    return policies is not None and not waits and all(call.runs_left for call in ran)


class _Settlement(msgspec.Struct, frozen=True):
    """Settles one turn. `calls` are its open tool calls; the other fields have the meaning that they have in
    `settle`."""

    unfinished: UnfinishedTurn
    ledger: Ledger
    clock: Clock
    policies: AgentPolicies | None
    calls: tuple[ToolCallRecord, ...]
    fence: tuple[Fence, ...]
    bare: bool

    async def end(self, turns: Sequence[TurnRecord], failure: str, fanout: Fanout) -> bool:
        """`turns` are the turns of the task, this one last; none where they are not to be read."""
        unfinished, task, now = self.unfinished, self.unfinished.task, self.clock.now()
        correlation_id = self.clock.correlation_id()
        message = self._message(failure, correlation_id)
        if unfinished.cancel_asked:
            # The caller that cancelled the task needs no reason.
            end = EndTurn(TurnStatus.CANCELLED, TaskState.CANCELED)
        else:
            end = EndTurn(TurnStatus.FAILED, TaskState.FAILED, message, failure)
        tokens = usage_metadata([TurnOutput.stored(turn) for turn in turns])
        final = status_update(task, status(end.state, timestamp(now), end.message), tokens)
        output, number = await self._shown(turns[-1] if turns else None, message)
        thread = await self._thread()
        over = Withdraw(task.id, now)
        before: tuple[CommitPoint, ...] = (
            *self.fence,
            *self._tool_ends(thread, now),
            *await self._rewinds(thread, end.status, now),
        )
        events: list[bytes] = []
        for update in self._call_updates(output):
            output.apply(update)
            events.append(entry(update))

        def unit(row: EventRow | None, last: int) -> tuple[CommitPoint, ...]:
            turn, thread, process = unfinished.turn, unfinished.thread, unfinished.process
            finish = commit_points.finish(output, end, task.id, turn, thread, row, last, now, process=process)
            return (*before, finish, RevertIfDisplaced(thread, turn, now), MarkUnsynced(thread, turn), over)

        if not await store_end(task.id, number, events, unit, entry(final), self.ledger, fanout):
            return False
        log.warning("turn.settled", task=task.id, turn=unfinished.turn, correlation_id=correlation_id, bare=self.bare)
        return True

    def _message(self, failure: str, correlation_id: str) -> Message:
        return Message(
            message_id=self.clock.new_id(),
            context_id=self.unfinished.task.context_id,
            task_id=self.unfinished.task.id,
            role=Role.AGENT,
            parts=(Part(text=safe_text(failure, correlation_id)),),
            metadata={"correlationId": correlation_id, "errorClass": failure},
        )

    async def _shown(self, record: TurnRecord | None, message: Message) -> tuple[TurnOutput, int]:
        """What the log shows of the turn, and the number of its last event. A log that cannot be read is left out of the
        record: the turn has to end all the same, because later turns wait for it."""
        task, ledger = self.unfinished.task, self.ledger
        if record is None:
            return TurnOutput(message), (await ledger.latest_events((task.id,)))[task.id]
        number, output = task.last_event, TurnOutput(record.message)
        try:
            events = await ledger.events(task.id, task.last_event)
            for number, _ in replay_events(output, record, events):  # noqa: B007 - the last one counts
                pass
        except CorruptRecord as error:
            log.error("turn.log-unreadable", task=task.id, error=str(error))
            number = (await ledger.latest_events((task.id,)))[task.id]
        return output, number

    async def _thread(self) -> ThreadRecord | None:
        """None where it is not needed, or gone; `bare`: or cannot be read. Raises: CorruptRecord."""
        if not (self.calls or (self.policies is not None and self.policies.persistence == "per_turn")):
            return None
        try:
            return await self.ledger.thread(self.unfinished.thread)
        except CorruptRecord:
            if self.bare:
                return None
            raise

    async def _rewinds(self, thread: ThreadRecord | None, status: TurnStatus, now: int) -> tuple[Rewind, ...]:
        """Undoes a failed turn with `per_turn`, for the backend too. Source: docs/state-model.md, scenario 59."""
        policies, turn = self.policies, self.unfinished.turn
        if policies is None or thread is None or not ownership.rewinds(thread, status, policies):
            return ()
        base = await self.ledger.turn_base(turn)
        return tuple(Rewind(self.unfinished.thread, turn, handle, now) for handle in base)

    # --- the open tool calls

    def _call_updates(self, output: TurnOutput) -> Iterator[Update]:
        """The ends of the calls, for callers: every call that the `output` shows to begin has an end, also a call of an answer
        that broke off with the process and is not in the ledger. A call of the client's for whose result the turn had not
        asked is shown before its end. Of an agent that is gone, no other calls are shown."""
        task, principal, policies = self.unfinished.task, self.unfinished.caller.principal, self.policies
        usual = HIDDEN if policies is None else rendering(policies.tool_calls, principal, frozenset())
        place = Place(task.id, task.context_id, timestamp(self.clock.now()), self.clock.new_id)
        told = {call.facts.id: call for call in shown_calls(output)}
        if usual.exposure != "none":
            # A task uses one channel.
            usual = next((call.rendering(usual) for call in told.values() if call.channel is not None), usual)
        updates: list[Update | None] = []
        for call in self.calls:
            facts, settled, shown = (
                paused_turn.call_facts(call),
                tool_call.outcome_at_end(call.status),
                told.get(call.id),
            )
            if shown is None and call.executor == "client":
                updates.append(tool_calls.update(facts, Phase.REQUESTED, call.arguments, usual, place))
            updates.append(_end(facts, settled, usual if shown is None else shown.rendering(usual), place))
        known = {call.id for call in self.calls}
        for broken_off in calls_without_end(output):
            facts, form = broken_off.facts, broken_off.rendering(usual)
            if facts.id not in known:
                updates.append(_end(facts, tool_call.outcome_when_cut(facts), form, place))
        return (update for update in updates if update is not None)

    def _tool_ends(self, thread: ThreadRecord | None, now: int) -> Iterator[ToolEnds]:
        """No call runs again: what ran may have done its work. Source: docs/state-model.md, scenarios 50 and 87."""
        unfinished, gateway = self.unfinished, thread is not None and thread.owner is StorageOwner.GATEWAY
        for call in self.calls:
            settled = tool_call.outcome_at_end(call.status)
            # The backend answers all of its own calls except its questions.
            approved = False if call.executor == "backend" else None
            item = OutputItem(call.external_id, settled.output, True, approved)
            replayable = not (gateway and settled.status is ToolCallStatus.CANCELLED)
            new = NewItem(item, None, call.id, replayable, unsent=True)
            command = EndTool(call.id, settled.status, settled.output, now, new)
            generation = unfinished.generation + unfinished.expired
            yield commit_points.tool_ends(unfinished.thread, generation, unfinished.turn, call.service_call, command)


def _end(facts: CallFacts, settled: Settled, form: Rendering, place: Place) -> Update | None:
    return tool_calls.update(facts, tool_call.PHASES[settled.status], settled.output, form, place)
