"""Ends tasks that do not run: a task that waits for its caller ends without another turn."""

from collections.abc import Callable, Sequence

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
    ledger: Ledger,
    fanout: Fanout,
    clock: Clock,
    shown: Rendering = HIDDEN,
    *,
    displaced: bool = False,
) -> bool:
    """Cancels the task. False: a message to the task, or another end of it, was faster.

    `shown`: what the caller sees of tool calls. `displaced`: the paused turn is no part of the conversation then.
    """
    clock = non_decreasing(clock, task.status_at)
    now = clock.now()
    event = entry(status_update(task, status(TaskState.CANCELED, timestamp(now))))
    paused = await paused_turn.load(ledger, clock, caller, task, shown)
    number, events = (task.last_event, []) if paused is None else (paused.number, paused.events)
    if paused is not None:
        paused.close()

    def unit(row: EventRow | None, last: int) -> tuple[CommitPoint, ...]:
        if paused is None:
            return (Close(task.id, TaskState.CANCELED, row, last, now),)
        return paused.ending(last, TaskState.CANCELED, row, now, displaced=displaced)

    return await store_end(task.id, number, events, unit, event, ledger, fanout)


async def store_end(
    task: str,
    number: int,
    events: Sequence[bytes],
    unit: Callable[[EventRow | None, int], tuple[CommitPoint, ...]],
    final: bytes,
    ledger: Ledger,
    fanout: Fanout,
) -> bool:
    """Stores the end of a task that does not run: `events` after the one with this `number`, and the `final` one in one unit.

    `unit` gets the row of the events and the number of the last one. False where another process was faster.
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
