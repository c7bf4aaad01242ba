"""What becomes of a turn whose process died. Law: it ends, with a reason that the caller can act on, and with all that
its log already showed."""

import structlog

from gateway import tools
from gateway.clock import Clock, timestamp
from gateway.commits import (
    Close,
    CommitPoint,
    Conflict,
    CorruptRecord,
    EventRow,
    Fence,
    Finish,
    NewItem,
    TaskRecord,
    ThreadRecord,
    ToolCallRecord,
    ToolEnds,
    UnfinishedTurn,
    Unsync,
)
from gateway.failures import RESTARTED, TOOL_OUTCOME_UNKNOWN, safe_text
from gateway.fanout import Fanout
from gateway.items import OutputItem, StorageOwner
from gateway.journal import Journal
from gateway.live import status
from gateway.model import Message, Part, Role, StreamResponse, TaskState, TaskStatusUpdateEvent
from gateway.ports import Ledger
from gateway.record import TurnOutput, logged
from gateway.wire.v1_0 import encode_event

log = structlog.get_logger("gateway.recovery")


async def settle(leftover: UnfinishedTurn, ledger: Ledger, fanout: Fanout, clock: Clock) -> None:
    """Ends the turn as FAILED. Nothing happens where another process was faster, or its own has come back to life.

    Raises: LedgerUnavailable, CorruptRecord.
    """
    task = leftover.task
    turns = (await ledger.turns((task.id,), artifacts=False))[task.id]
    thread, left = await _left_open(leftover, ledger)
    output, number = await _shown(TurnOutput(turns[-1].message), task, ledger)
    now = clock.now()
    correlation_id = clock.correlation_id()
    ran = any(call.status == "running" for call in left)
    failure = TOOL_OUTCOME_UNKNOWN if ran else RESTARTED
    why = _why(failure, task.id, task.context_id, clock.new_id(), correlation_id)
    final = status(TaskState.FAILED, timestamp(now), why)
    update = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=final)

    fence = (Fence(leftover.thread, leftover.generation, now),) if leftover.expired else ()

    ends = _ends(thread, left, leftover) if thread is not None else ()

    def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
        return (
            *fence,
            *ends,
            Finish(
                task=task.id,
                turn=leftover.turn,
                thread=leftover.thread,
                status="failed",
                failure_class=failure,
                state=TaskState.FAILED,
                message=final.message,
                events=row,
                last_event=number + 1,
                artifacts=output.artifacts_json(),
                messages=output.messages_json(final.message),
                visible=True,
                now=now,
            ),
            Unsync(leftover.thread, leftover.turn),
        )

    journal = Journal(ledger, fanout.hold(task.id), task.id, number)
    try:
        event = encode_event(StreamResponse(status_update=update))
        await journal.commit(unit, event, stored=lambda: fanout.close(task.id))
    except Conflict:
        return
    finally:
        fanout.release(task.id)
    log.warning("turn.settled", task=task.id, turn=leftover.turn, correlation_id=correlation_id)


async def _left_open(
    leftover: UnfinishedTurn, ledger: Ledger
) -> tuple[ThreadRecord | None, tuple[ToolCallRecord, ...]]:
    """The tool calls of the turn that have no outcome; the thread where there are any."""
    left = await ledger.open_tool_calls(leftover.turn)
    return (await ledger.thread(leftover.thread) if left else None), left


def _ends(thread: ThreadRecord, left: tuple[ToolCallRecord, ...], leftover: UnfinishedTurn) -> tuple[ToolEnds, ...]:
    """None of them is run again: what ran may have done its work. Source: state-model, scenarios 50 and 87."""
    generation = leftover.generation + leftover.expired
    gateway = thread.owner is StorageOwner.GATEWAY
    ends = []
    for call in left:
        settled = tools.unfinished(call.status)
        item = OutputItem(call.external_id, settled.output, error=True)
        told = NewItem(item, None, call.id, replayable=not (gateway and settled.status == "cancelled"), unsent=True)
        ends.append(
            ToolEnds(
                thread=thread.id,
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


async def _shown(output: TurnOutput, task: TaskRecord, ledger: Ledger) -> tuple[TurnOutput, int]:
    """What the log shows of the turn, and the number of its last event. A log that cannot be read is left out of the
    record: the turn has to end all the same, because those behind it wait for it."""
    number = task.last_event
    try:
        for number, payload in await ledger.events(task.id, task.last_event):  # noqa: B007 - the last one counts
            output.apply(logged(payload))
    except CorruptRecord as error:
        log.error("turn.log-unreadable", task=task.id, error=str(error))
        number = (await ledger.latest_events((task.id,)))[task.id]
    return output, number


async def close_task(task: TaskRecord, state: TaskState, ledger: Ledger, fanout: Fanout, clock: Clock) -> bool:
    """Ends a task that waits for its caller. A message, or another that ends it, may be faster: then False."""
    now = clock.now()
    update = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status(state, timestamp(now)))

    def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
        return (Close(task.id, state, row, task.last_event + 1, now),)

    journal = Journal(ledger, fanout.hold(task.id), task.id, task.last_event)
    try:
        event = encode_event(StreamResponse(status_update=update))
        await journal.commit(unit, event, stored=lambda: fanout.close(task.id))
    except Conflict:
        return False
    finally:
        fanout.release(task.id)
    return True


def _why(failure: str, task_id: str, context_id: str, message_id: str, correlation_id: str) -> Message:
    return Message(
        message_id=message_id,
        context_id=context_id,
        task_id=task_id,
        role=Role.AGENT,
        parts=(Part(text=safe_text(failure, correlation_id)),),
        metadata={"correlationId": correlation_id, "errorClass": failure},
    )
