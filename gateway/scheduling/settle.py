"""What becomes of a turn whose process died. Law: it ends, with a reason that the caller can act on, and with all that
its log already showed."""

from collections.abc import Iterator

import structlog

from gateway.a2a import tool_calls
from gateway.a2a.model import Message, Part, Role, TaskState, TaskStatusUpdateEvent
from gateway.a2a.tool_calls import HIDDEN, CallFacts, Place, Update, rendering
from gateway.core import ownership
from gateway.core.agents import AgentPolicies
from gateway.core.failures import TOOL_OUTCOME_UNKNOWN, safe_text
from gateway.core.task_record import TurnOutput, replay
from gateway.core.tools import tool_call
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.turn_run import status
from gateway.foundation.clock import Clock, non_decreasing, timestamp
from gateway.ledger.calls import RESTARTED, NewItem
from gateway.ledger.errors import Conflict, CorruptRecord
from gateway.ledger.events import entry
from gateway.ledger.leases import Fence, UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ledger.tasks import EventRow, Finish, TaskRecord, TurnRecord
from gateway.ledger.threads import MarkUnsynced, RevertIfDisplaced, Rewind, ThreadRecord
from gateway.ledger.tool_calls import ToolCallRecord, ToolEnds
from gateway.ledger.turns import Suspend
from gateway.ports.conversation import OutputItem, StorageOwner

log = structlog.get_logger("gateway.scheduling.settle")


async def settle(
    leftover: UnfinishedTurn,
    ledger: Ledger,
    fanout: Fanout,
    clock: Clock,
    policies: AgentPolicies | None = None,
    failure: str = RESTARTED,
    *,
    bare: bool = False,
) -> bool:
    """Ends the turn as FAILED, unless what its caller allowed, and has not taken back, has still to be done. False, and nothing
    happens, where another process was faster, or its own has come back to life.

    `policies`: its agent's, None where there is none any more. `failure`: why nobody goes on with it. `bare`: it could not be
    ended otherwise; what it has said and shown is not read, and is not in its record. Raises: LedgerUnavailable,
    CorruptRecord.
    """
    task = leftover.task
    turns = () if bare else (await ledger.turns((task.id,), artifacts=False))[task.id]
    left = await ledger.open_tool_calls(leftover.turn)
    fence = (Fence(leftover.thread, leftover.generation, clock.now()),) if leftover.expired else ()
    clock = non_decreasing(clock, task.status_at)
    now = clock.now()
    ran = any(call.status is ToolCallStatus.RUNNING for call in left)
    if not (bare or leftover.cancel_asked) and _may_go_on(left, policies):
        rests = Suspend(task.id, leftover.turn, leftover.thread, TaskState.WORKING, None, None, now)
        try:
            await ledger.commit(*fence, rests)
        except Conflict:
            return False
        return True
    correlation_id = clock.correlation_id()
    failure = TOOL_OUTCOME_UNKNOWN if ran else failure
    why = _why(failure, task.id, task.context_id, clock.new_id(), correlation_id)
    # What its caller takes back need not be explained.
    cancels = bare and leftover.cancel_asked
    final = status(*((TaskState.CANCELED, timestamp(now)) if cancels else (TaskState.FAILED, timestamp(now), why)))
    update = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=final)
    if turns:
        output, number = await _shown(turns[-1], task, ledger)
    else:
        output, number = TurnOutput(why), (await ledger.latest_events((task.id,)))[task.id]

    thread = await _thread(leftover, ledger, bare=bare) if left or _goes_back(policies) else None
    ends = _ends(thread, left, leftover)
    back = await _way_back(leftover, thread, policies, ledger, now)

    def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
        return (
            *fence,
            *ends,
            *back,
            Finish(
                task=task.id,
                turn=leftover.turn,
                thread=leftover.thread,
                status=TurnStatus.CANCELLED if cancels else TurnStatus.FAILED,
                failure_class=None if cancels else failure,
                state=final.state,
                message=final.message,
                events=row,
                last_event=journal.number + 1,
                artifacts=output.artifacts_json(),
                messages=output.messages_json(final.message),
                visible=True,
                now=now,
                process=leftover.process,
            ),
            RevertIfDisplaced(leftover.thread, leftover.turn, now),
            MarkUnsynced(leftover.thread, leftover.turn),
        )

    journal = Journal(ledger, fanout.hold(task.id), task.id, number)
    try:
        for told in _told(left, leftover, policies, clock):
            output.apply(told)
            journal.add(entry(told))
        event = entry(update)
        await journal.commit(unit, event, stored=lambda: fanout.close(task.id))
    except Conflict:
        return False
    finally:
        fanout.release(task.id)
    log.warning("turn.settled", task=task.id, turn=leftover.turn, correlation_id=correlation_id, bare=bare)
    return True


def _may_go_on(left: tuple[ToolCallRecord, ...], policies: AgentPolicies | None) -> bool:
    """What was allowed has not begun, and may still be done; what ran and is idempotent is done again, with the same key.

    Not where a sibling waits for the caller, whom nobody has asked yet: what was to be told died with its process.
    Source: state-model, scenarios 50, 116 and 120.
    """
    ran = [call for call in left if call.status is ToolCallStatus.RUNNING]
    if not ran:
        states = {call.status for call in left}
        return ToolCallStatus.APPROVED in states and ToolCallStatus.PENDING_CONSENT not in states
    asks = (ToolCallStatus.PENDING_APPROVAL, ToolCallStatus.PENDING_CONSENT)
    waits = any(call.status in asks or call.executor == "client" for call in left)
    return policies is not None and not waits and all(call.runs_left for call in ran)


async def _thread(leftover: UnfinishedTurn, ledger: Ledger, *, bare: bool) -> ThreadRecord | None:
    """None where it is gone; `bare`: or cannot be read. Raises: CorruptRecord."""
    try:
        return await ledger.thread(leftover.thread)
    except CorruptRecord:
        if bare:
            return None
        raise


def _told(
    left: tuple[ToolCallRecord, ...], leftover: UnfinishedTurn, policies: AgentPolicies | None, clock: Clock
) -> Iterator[Update]:
    """How the calls ended, for callers: what was told to begin has an end. Of an agent that is gone nothing is shown."""
    shown = HIDDEN if policies is None else rendering(policies.tool_calls, leftover.caller.principal, frozenset())
    place = Place(leftover.task.id, leftover.task.context_id, timestamp(clock.now()), clock.new_id)
    for call in left:
        settled = tool_call.outcome_at_end(call.status)
        facts = CallFacts(call.id, call.name, call.round, call.sequence, call.executor, call.server, timestamp(call.at))
        update = tool_calls.update(facts, tool_call.PHASES[settled.status], settled.output, shown, place)
        if update is not None:
            yield update


def _ends(
    thread: ThreadRecord | None, left: tuple[ToolCallRecord, ...], leftover: UnfinishedTurn
) -> tuple[ToolEnds, ...]:
    """None of them is run again: what ran may have done its work. Source: state-model, scenarios 50 and 87."""
    generation = leftover.generation + leftover.expired
    gateway = thread is not None and thread.owner is StorageOwner.GATEWAY
    ends = []
    for call in left:
        settled = tool_call.outcome_at_end(call.status)
        # Of the backend's own calls only its questions are ever left open.
        approved = False if call.executor == "backend" else None
        item = OutputItem(call.external_id, settled.output, True, approved)
        told = NewItem(
            item, None, call.id, replayable=not (gateway and settled.status is ToolCallStatus.CANCELLED), unsent=True
        )
        ends.append(
            ToolEnds(
                thread=leftover.thread,
                generation=generation,
                turn=leftover.turn,
                service_call=call.service_call,
                tool_call=call.id,
                status=settled.status,
                outcome=settled.output,
                item=told,
            )
        )
    return tuple(ends)


def _goes_back(policies: AgentPolicies | None) -> bool:
    return policies is not None and policies.persistence == "per_turn"


async def _way_back(
    leftover: UnfinishedTurn, thread: ThreadRecord | None, policies: AgentPolicies | None, ledger: Ledger, now: int
) -> tuple[Rewind, ...]:
    """With `per_turn` the turn has not been, for the backend too. Source: state-model, scenario 59."""
    if policies is None or thread is None or not ownership.rewinds(thread, TurnStatus.FAILED, policies):
        return ()
    base = await ledger.turn_base(leftover.turn)
    return tuple(Rewind(leftover.thread, leftover.turn, handle, now) for handle in base)


async def _shown(turn: TurnRecord, task: TaskRecord, ledger: Ledger) -> tuple[TurnOutput, int]:
    """What the log shows of the turn, and the number of its last event. A log that cannot be read is left out of the
    record: the turn has to end all the same, because those behind it wait for it."""
    number, output = task.last_event, TurnOutput(turn.message)
    try:
        events = await ledger.events(task.id, task.last_event)
        for number, _ in replay(output, turn, events):  # noqa: B007 - the last one counts
            pass
    except CorruptRecord as error:
        log.error("turn.log-unreadable", task=task.id, error=str(error))
        number = (await ledger.latest_events((task.id,)))[task.id]
    return output, number


def _why(failure: str, task_id: str, context_id: str, message_id: str, correlation_id: str) -> Message:
    return Message(
        message_id=message_id,
        context_id=context_id,
        task_id=task_id,
        role=Role.AGENT,
        parts=(Part(text=safe_text(failure, correlation_id)),),
        metadata={"correlationId": correlation_id, "errorClass": failure},
    )
