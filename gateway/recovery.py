"""What becomes of a turn whose process died. Law: it ends, with a reason that the caller can act on, and with all that
its log already showed."""

import structlog

from gateway.clock import Clock, timestamp
from gateway.commits import Close, CommitPoint, Conflict, EventRow, Fence, Finish, TaskRecord, UnfinishedTurn
from gateway.failures import RESTARTED, safe_text
from gateway.fanout import Fanout
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
    events = await ledger.events(task.id, task.last_event)
    turns = (await ledger.turns((task.id,), artifacts=False))[task.id]
    output = TurnOutput(turns[-1].message)
    for _, payload in events:
        output.apply(logged(payload))
    number = events[-1][0] if events else task.last_event
    now = clock.now()
    correlation_id = clock.correlation_id()
    final = status(TaskState.FAILED, timestamp(now), _why(task.id, task.context_id, clock.new_id(), correlation_id))
    update = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=final)

    fence = (Fence(leftover.thread, leftover.generation, now),) if leftover.expired else ()

    def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
        return (
            *fence,
            Finish(
                task=task.id,
                turn=leftover.turn,
                thread=leftover.thread,
                status="failed",
                failure_class=RESTARTED,
                state=TaskState.FAILED,
                message=final.message,
                events=row,
                last_event=number + 1,
                artifacts=output.artifacts_json(),
                messages=output.messages_json(final.message),
                visible=True,
                now=now,
            ),
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


def _why(task_id: str, context_id: str, message_id: str, correlation_id: str) -> Message:
    return Message(
        message_id=message_id,
        context_id=context_id,
        task_id=task_id,
        role=Role.AGENT,
        parts=(Part(text=safe_text(RESTARTED, correlation_id)),),
        metadata={"correlationId": correlation_id, "errorClass": RESTARTED},
    )
