"""What is posted for an event, in the version of A2A in which its configuration was made.

A receiver of 1.0 gets every event as it is logged, one of the 1.1 draft with its generation. One of 0.3 gets the whole task
whenever its status changes, as the servers of that version post it; the pieces of an artifact are in the task of the next
change. Source: A2A 0.3.0, section 9.5.
"""

from gateway.a2a.model import Task, TaskStatusUpdateEvent
from gateway.a2a.wire import v1_1
from gateway.a2a.wire.v0_3 import results
from gateway.core.task_log import task_at
from gateway.foundation.off_loop import off_loop
from gateway.ledger.events import logged
from gateway.ledger.port import PushLedger


class UnknownVersion(Exception):
    """No notification can be written in this version of A2A."""


async def body(ledger: PushLedger, version: str, task: str, number: int, payload: bytes) -> bytes | None:
    """The body of the post for an event of the task, None for an event that is not posted.

    Raises: UnknownVersion, CorruptRecord, LedgerUnavailable.
    """
    match version:
        case "1.0":
            return payload
        case "1.1":
            return v1_1.event(number, payload)
        case "0.3":
            return await _whole_task(ledger, task, number, payload)
        case _:
            raise UnknownVersion(version)


async def _whole_task(ledger: PushLedger, task: str, number: int, payload: bytes) -> bytes | None:
    update = logged(payload)
    if not isinstance(update, TaskStatusUpdateEvent):
        return None
    events = await ledger.events(task, 0)
    turns = (await ledger.turns((task,), artifacts=False))[task]
    empty = Task(id=task, context_id=update.context_id, status=update.status)
    size = sum(len(each) for _, each in events)
    return await off_loop(size, lambda: results.encode(task_at(empty, turns, events, number)))
