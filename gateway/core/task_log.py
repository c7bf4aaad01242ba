"""A task as it was right after one of its events, from its log. Law: pure; the log of a task and its messages are all that it
takes."""

from collections.abc import Sequence

from msgspec.structs import replace

from gateway.a2a.model import Message, Task, TaskState, TaskStatus, TaskStatusUpdateEvent
from gateway.core import usage
from gateway.core.task_record import TurnOutput, assemble, only_works, pauses
from gateway.ledger.events import Update, logged
from gateway.ledger.tasks import TurnRecord


def task_at(empty: Task, turns: Sequence[TurnRecord], events: Sequence[tuple[int, bytes]], number: int) -> Task:
    """The task right after event `number` of its log. `empty` has its ids, the time at which it began, and its state where
    there is no event.

    Raises: CorruptRecord.
    """
    openings = [(turn.event, turn.message) for turn in turns if turn.event <= number or turn is turns[0]]
    answers = [answer for turn in turns for answer in turn.answers if answer[0] <= number]
    updates = [(at, logged(payload)) for at, payload in events[: max(number, 1)]]
    first = empty.status
    if updates:
        state = TaskState.SUBMITTED if only_works(updates[0][1]) else TaskState.WORKING
        first = replace(first, state=state)
    current, outputs = _fold(first, openings, answers, updates[:number])
    return assemble(empty.id, empty.context_id, current, outputs)


def status_after(update: Update, current: TaskStatus) -> TaskStatus:
    """A message of a working agent goes to the history; a question stays in the status."""
    if not isinstance(update, TaskStatusUpdateEvent):
        return current
    if update.status.state is TaskState.WORKING:
        return current if current.state is TaskState.WORKING else replace(update.status, message=None)
    return update.status if update.status.state is not current.state or pauses(update) else current


def _fold(
    current: TaskStatus,
    openings: Sequence[tuple[int, Message]],
    answers: Sequence[tuple[int, Message]],
    updates: Sequence[tuple[int, Update]],
) -> tuple[TaskStatus, list[TurnOutput]]:
    """The status of the task and the outputs of its turns, from its log. `openings` holds, for each turn, the number of
    the task's latest event when the turn was accepted, and the message of the turn.

    `answers` holds, for each further message, the number of the first event after the message, and the message.
    """
    outputs = [TurnOutput(openings[0][1])]
    waiting, further = list(openings[1:]), list(answers)
    for number, update in updates:
        while waiting and waiting[0][0] <= number:
            outputs.append(TurnOutput(waiting.pop(0)[1]))
        while further and further[0][0] <= number:
            outputs[-1].messages.append(further.pop(0)[1])
        outputs[-1].apply(update)
        if isinstance(update, TaskStatusUpdateEvent) and (shown := usage.shown_in(update.metadata)) is not None:
            outputs[-1].usage = shown
        current = status_after(update, current)
    return current, outputs
