"""Ends a task that waits for its caller, without another turn."""

from gateway.a2a.model import TaskState
from gateway.a2a.tool_calls import HIDDEN, Rendering
from gateway.engine import paused_turn
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.turn_run import status, status_update
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
    """False: a message to the task, or another end of it, was faster.

    `shown`: what the caller sees of tool calls. `displaced`: the paused turn is no part of the conversation then.
    """
    clock = non_decreasing(clock, task.status_at)
    now = clock.now()
    event = entry(status_update(task, status(state, timestamp(now))))
    paused = await paused_turn.load(ledger, clock, caller, task, shown)
    journal = Journal(ledger, fanout.hold(task.id), task.id, paused.number if paused else task.last_event)

    def unit(row: EventRow | None) -> tuple[CommitPoint, ...]:
        last = journal.number + 1
        if paused is None:
            return (Close(task.id, state, row, last, now),)
        return paused.ending(last, state, row, now, displaced=displaced)

    try:
        if paused is not None:
            paused.close()
            for payload in paused.events:
                journal.add(payload)
        await journal.commit(unit, event, stored=lambda: fanout.close(task.id))
    except Conflict:
        return False
    finally:
        fanout.release(task.id)
    return True
