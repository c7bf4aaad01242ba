"""Ends a task that waits for its caller, without another turn."""

from gateway.a2a.model import TaskState, TaskStatusUpdateEvent
from gateway.a2a.tool_calls import HIDDEN, Rendering
from gateway.engine import paused_turn
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.turn_run import status
from gateway.foundation.clock import Clock, non_decreasing, timestamp
from gateway.ledger.errors import Conflict
from gateway.ledger.events import entry
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import Close, EventRow, TaskRecord
from gateway.ledger.threads import Caller


async def close_task(
    caller: Caller,
    task: TaskRecord,
    state: TaskState,
    ledger: Ledger,
    fanout: Fanout,
    clock: Clock,
    shown: Rendering = HIDDEN,
    *,
    displaced: bool = False,
) -> bool:
    """Ends a task that waits for its caller. A message, or another that ends it, may be faster: then False.

    `shown`: what its caller sees of its tool calls. `displaced`: its turn that waits is no part of the conversation then.
    """
    clock = non_decreasing(clock, task.status_at)
    now = clock.now()
    update = TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status(state, timestamp(now)))
    waiting = await paused_turn.load(ledger, clock, caller, task, shown)
    journal = Journal(ledger, fanout.hold(task.id), task.id, waiting.number if waiting else task.last_event)

    def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
        last = journal.number + 1
        if waiting is None:
            return (Close(task.id, state, row, last, now),)
        return waiting.ending(last, state, row, now, displaced=displaced)

    try:
        if waiting is not None:
            waiting.close()
            for payload in waiting.events:
                journal.add(payload)
        event = entry(update)
        await journal.commit(unit, event, stored=lambda: fanout.close(task.id))
    except Conflict:
        return False
    finally:
        fanout.release(task.id)
    return True
