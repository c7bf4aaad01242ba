"""A task as it was right after one of its events, from its log. Law: no I/O; the log of a task and its messages are all that it
takes."""

from collections.abc import Sequence

from msgspec.structs import replace

from gateway.a2a.model import Task, TaskState, TaskStatus, TaskStatusUpdateEvent
from gateway.core import usage
from gateway.core.task_record import TurnOutput, assemble, only_works, pauses
from gateway.ledger.events import Update, logged
from gateway.ledger.tasks import TurnRecord


def task_at(empty: Task, turns: Sequence[TurnRecord], events: Sequence[tuple[int, bytes]], number: int) -> Task:
    """The task right after event `number` of its log, as `TaskAt` makes it. Raises: CorruptRecord."""
    task = TaskAt(empty, turns, number)
    task.apply(events)
    return task.made()


class TaskAt:
    """The task right after event `number` of its log, of which it takes piece by piece."""

    def __init__(self, empty: Task, turns: Sequence[TurnRecord], number: int) -> None:
        """`empty` has its ids, the time at which it began, and its state where there is no event."""
        self._empty = empty
        self._number = number
        self._status = empty.status
        self._begun = False
        self._outputs = [TurnOutput(turns[0].message)]
        self._turns = [(turn.event, turn.message) for turn in turns[1:] if turn.event <= number]
        """For each later turn, the number of the task's latest event when the turn was accepted, and its message."""
        self._answers = [answer for turn in turns for answer in turn.answers if answer[0] <= number]
        """For each further message, the number of the first event after the message, and the message."""

    def apply(self, events: Sequence[tuple[int, bytes]]) -> None:
        """Takes the next events; those behind `number` change nothing. Raises: CorruptRecord."""
        for number, payload in events:
            if self._begun and number > self._number:
                return
            update = logged(payload)
            if not self._begun:
                self._begun = True
                state = TaskState.SUBMITTED if only_works(update) else TaskState.WORKING
                self._status = replace(self._status, state=state)
            if number <= self._number:
                self._take(number, update)

    def _take(self, number: int, update: Update) -> None:
        outputs = self._outputs
        while self._turns and self._turns[0][0] <= number:
            outputs.append(TurnOutput(self._turns.pop(0)[1]))
        while self._answers and self._answers[0][0] <= number:
            outputs[-1].messages.append(self._answers.pop(0)[1])
        outputs[-1].apply(update)
        if isinstance(update, TaskStatusUpdateEvent) and (shown := usage.shown_in(update.metadata)) is not None:
            outputs[-1].usage = shown
        self._status = status_after(update, self._status)

    def made(self) -> Task:
        return assemble(self._empty.id, self._empty.context_id, self._status, self._outputs)


def status_after(update: Update, current: TaskStatus) -> TaskStatus:
    """A message of a working agent goes to the history; a question stays in the status."""
    if not isinstance(update, TaskStatusUpdateEvent):
        return current
    if update.status.state is TaskState.WORKING:
        return current if current.state is TaskState.WORKING else replace(update.status, message=None)
    return update.status if update.status.state is not current.state or pauses(update) else current
