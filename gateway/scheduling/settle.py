"""Ends a turn whose process died. Law: it ends with a reason that the caller can act on, and with everything that its log has
shown; a turn with calls that the caller allowed is paused instead, and does them later."""

from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from gateway.a2a import tool_calls
from gateway.a2a.model import Message, Part, Role, TaskState, TaskStatus
from gateway.a2a.tool_calls import HIDDEN, Place, Update, rendering
from gateway.core import commit_points, ownership
from gateway.core.agents import AgentPolicies
from gateway.core.failures import TOOL_OUTCOME_UNKNOWN, safe_text
from gateway.core.task_record import TurnOutput, replay
from gateway.core.tools import tool_call
from gateway.core.turn.commands import EndTool
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.paused_turn import call_facts
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
from gateway.ledger.threads import MarkUnsynced, RevertIfDisplaced, Rewind, ThreadRecord
from gateway.ledger.tool_calls import ToolCallRecord, ToolEnds
from gateway.ledger.turns import Suspend
from gateway.ports.conversation import OutputItem, StorageOwner

log = structlog.get_logger("gateway.scheduling.settle")


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
    """Ends the turn as FAILED, or pauses it with calls that its caller allowed, and did not take back. False, and nothing
    happens, where another process was faster, or the turn's own has come back to life.

    `policies`: its agent's, None where the agent is gone. `failure`: why the turn does not go on. `bare`: it could not be ended
    otherwise; its messages and artifacts are not read, and are not in its record. Raises: LedgerUnavailable, CorruptRecord.
    """
    task = unfinished.task
    turns = () if bare else (await ledger.turns((task.id,), artifacts=False))[task.id]
    calls = await ledger.open_tool_calls(unfinished.turn)
    fence = (Fence(unfinished.thread, unfinished.generation, clock.now()),) if unfinished.expired else ()
    clock = non_decreasing(clock, task.status_at)
    if not (bare or unfinished.cancel_asked) and _may_go_on(calls, policies):
        return await _pause(unfinished, fence, ledger, clock.now())
    if any(call.status is ToolCallStatus.RUNNING for call in calls):
        failure = TOOL_OUTCOME_UNKNOWN
    end = _end(unfinished, failure, clock, bare=bare)
    output, number = await _shown(unfinished, turns, end, ledger)
    needed = calls or (policies is not None and policies.persistence == "per_turn")
    thread = await _thread(unfinished, ledger, bare=bare) if needed else None
    ends, rewinds = _tool_ends(thread, calls, unfinished), await _rewinds(unfinished, thread, policies, ledger, end.now)
    updates = _call_updates(calls, unfinished, policies, clock)
    if not await _store(unfinished, end, (*fence, *ends, *rewinds), output, number, updates, ledger, fanout):
        return False
    log.warning("turn.settled", task=task.id, turn=unfinished.turn, correlation_id=end.correlation_id, bare=bare)
    return True


def _may_go_on(calls: tuple[ToolCallRecord, ...], policies: AgentPolicies | None) -> bool:
    """Calls that were allowed and have not begun may still run; idempotent calls that ran may run again, with the same key.

    Not beside a call that waits for the caller, who was not asked yet: the question died with the process.
    Source: docs/state-model.md, scenarios 50, 116 and 120.
    """
    ran = [call for call in calls if call.status is ToolCallStatus.RUNNING]
    if not ran:
        states = {call.status for call in calls}
        return ToolCallStatus.APPROVED in states and ToolCallStatus.PENDING_CONSENT not in states
    asks = (ToolCallStatus.PENDING_APPROVAL, ToolCallStatus.PENDING_CONSENT)
    waits = any(call.status in asks or call.executor == "client" for call in calls)
    return policies is not None and not waits and all(call.runs_left for call in ran)


async def _pause(unfinished: UnfinishedTurn, fence: tuple[Fence, ...], ledger: Ledger, now: int) -> bool:
    task, turn, thread = unfinished.task.id, unfinished.turn, unfinished.thread
    try:
        await ledger.commit(*fence, Suspend(task, turn, thread, TaskState.WORKING, None, None, now))
    except Conflict:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _End:
    """`message` says why the turn ended; a caller that cancelled the task gets none."""

    final: TaskStatus
    failure: str | None
    message: Message
    correlation_id: str
    now: int


def _end(unfinished: UnfinishedTurn, failure: str, clock: Clock, *, bare: bool) -> _End:
    task, now = unfinished.task, clock.now()
    correlation_id = clock.correlation_id()
    message = Message(
        message_id=clock.new_id(),
        context_id=task.context_id,
        task_id=task.id,
        role=Role.AGENT,
        parts=(Part(text=safe_text(failure, correlation_id)),),
        metadata={"correlationId": correlation_id, "errorClass": failure},
    )
    if bare and unfinished.cancel_asked:
        return _End(status(TaskState.CANCELED, timestamp(now)), None, message, correlation_id, now)
    return _End(status(TaskState.FAILED, timestamp(now), message), failure, message, correlation_id, now)


async def _shown(
    unfinished: UnfinishedTurn, turns: tuple[TurnRecord, ...], end: _End, ledger: Ledger
) -> tuple[TurnOutput, int]:
    """What the log shows of the turn, and the number of its last event. A log that cannot be read is left out of the
    record: the turn has to end all the same, because later turns wait for it."""
    task = unfinished.task
    if not turns:
        return TurnOutput(end.message), (await ledger.latest_events((task.id,)))[task.id]
    number, output = task.last_event, TurnOutput(turns[-1].message)
    try:
        events = await ledger.events(task.id, task.last_event)
        for number, _ in replay(output, turns[-1], events):  # noqa: B007 - the last one counts
            pass
    except CorruptRecord as error:
        log.error("turn.log-unreadable", task=task.id, error=str(error))
        number = (await ledger.latest_events((task.id,)))[task.id]
    return output, number


async def _thread(unfinished: UnfinishedTurn, ledger: Ledger, *, bare: bool) -> ThreadRecord | None:
    """None where it is gone; `bare`: or cannot be read. Raises: CorruptRecord."""
    try:
        return await ledger.thread(unfinished.thread)
    except CorruptRecord:
        if bare:
            return None
        raise


async def _store(
    unfinished: UnfinishedTurn,
    end: _End,
    before: tuple[CommitPoint, ...],
    output: TurnOutput,
    number: int,
    updates: Iterator[Update],
    ledger: Ledger,
    fanout: Fanout,
) -> bool:
    """C6, with the points `before` it, behind `updates`. False where another process was faster."""
    task, turn, thread = unfinished.task, unfinished.turn, unfinished.thread
    journal = Journal(ledger, fanout.hold(task.id), task.id, number)

    def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
        finish = commit_points.finish(
            output,
            task=task.id,
            turn=turn,
            thread=thread,
            status=TurnStatus.CANCELLED if end.failure is None else TurnStatus.FAILED,
            state=end.final.state,
            row=row,
            last_event=journal.number + 1,
            now=end.now,
            message=end.final.message,
            failure=end.failure,
            process=unfinished.process,
        )
        return (*before, finish, RevertIfDisplaced(thread, turn, end.now), MarkUnsynced(thread, turn))

    try:
        for update in updates:
            output.apply(update)
            journal.add(entry(update))
        final = entry(status_update(task, end.final))
        await journal.commit(unit, final, stored=lambda: fanout.close(task.id))
    except Conflict:
        return False
    finally:
        fanout.release(task.id)
    return True


# --- the open tool calls of the turn


def _call_updates(
    calls: tuple[ToolCallRecord, ...], unfinished: UnfinishedTurn, policies: AgentPolicies | None, clock: Clock
) -> Iterator[Update]:
    """The ends of the calls, for callers: every call that was shown to begin has an end. Calls of an agent that is gone are not
    shown."""
    shown = HIDDEN if policies is None else rendering(policies.tool_calls, unfinished.caller.principal, frozenset())
    place = Place(unfinished.task.id, unfinished.task.context_id, timestamp(clock.now()), clock.new_id)
    for call in calls:
        settled = tool_call.outcome_at_end(call.status)
        update = tool_calls.update(call_facts(call), tool_call.PHASES[settled.status], settled.output, shown, place)
        if update is not None:
            yield update


def _tool_ends(
    thread: ThreadRecord | None, calls: tuple[ToolCallRecord, ...], unfinished: UnfinishedTurn
) -> Iterator[ToolEnds]:
    """No call runs again: what ran may have done its work. Source: docs/state-model.md, scenarios 50 and 87."""
    generation = unfinished.generation + unfinished.expired
    gateway = thread is not None and thread.owner is StorageOwner.GATEWAY
    for call in calls:
        settled = tool_call.outcome_at_end(call.status)
        # Of the backend's own calls only its questions are ever left open.
        approved = False if call.executor == "backend" else None
        item = OutputItem(call.external_id, settled.output, True, approved)
        replayable = not (gateway and settled.status is ToolCallStatus.CANCELLED)
        new = NewItem(item, None, call.id, replayable, unsent=True)
        command = EndTool(call.id, settled.status, settled.output, new)
        yield commit_points.tool_ends(unfinished.thread, generation, unfinished.turn, call.service_call, command)


async def _rewinds(
    unfinished: UnfinishedTurn, thread: ThreadRecord | None, policies: AgentPolicies | None, ledger: Ledger, now: int
) -> tuple[Rewind, ...]:
    """With `per_turn` a failed turn is undone, for the backend too. Source: docs/state-model.md, scenario 59."""
    if policies is None or thread is None or not ownership.rewinds(thread, TurnStatus.FAILED, policies):
        return ()
    base = await ledger.turn_base(unfinished.turn)
    return tuple(Rewind(unfinished.thread, unfinished.turn, handle, now) for handle in base)
