"""Tasks as their callers see them, read from the turns of this process or from the ledger. Law: what is shown is stored."""

from collections.abc import Callable, Sequence

import msgspec
import structlog
from msgspec.structs import replace

from gateway.a2a.errors import invalid
from gateway.a2a.model import INTERRUPTED, TERMINAL, Json, Task, TaskStatus, TaskStatusUpdateEvent
from gateway.core.task_log import TaskAt, status_after
from gateway.core.task_record import TurnOutput, assemble, pauses, replay_events
from gateway.engine.fanout import Subscription
from gateway.engine.turn_run import LiveTask, TurnRun, status
from gateway.foundation.clock import timestamp
from gateway.foundation.off_loop import off_loop
from gateway.ledger.errors import Conflict, CorruptRecord
from gateway.ledger.events import Frame, Update
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import ListedTask, PageLimits, TaskRecord, TurnRecord
from gateway.operations.call import OperationCall
from gateway.operations.target import not_found
from gateway.scheduling.runner import Runner

log = structlog.get_logger("gateway.operations.task_reader")

_SETTLED = TERMINAL | INTERRUPTED

_GROWTH = 6
"""Times that a task may become larger on its way to a caller: `1,` is two bytes of JSON and eleven of protobuf."""

_QUARANTINED: dict[str, Json] = {"quarantined": True}
"""Metadata of a task whose turn could not be ended: the output of that turn is left out."""


class TaskReader(msgspec.Struct, frozen=True):
    ledger: Ledger
    runner: Runner

    def run_of(self, call: OperationCall, task_id: str) -> TurnRun | None:
        """The turn that waits or runs here, if this caller may know of its task."""
        run = self.runner.run_of(task_id)
        if run is None or run.caller != call.caller or run.agent.name != call.agent.name or not run.public:
            return None
        return run

    def runs_here(self, call: OperationCall, task_id: str) -> bool:
        return self.run_of(call, task_id) is not None

    async def record(self, call: OperationCall, task_id: str) -> TaskRecord:
        """Raises: TaskNotFound, also for a task of another caller."""
        record = await self.ledger.task(call.caller, call.agent.name, task_id)
        if record is None or not (record.visible or self.run_of(call, task_id)):
            raise not_found(task_id)
        return record

    async def latest_event(self, record: TaskRecord) -> int:
        """The number of the task's latest stored event. While a turn has not ended, the log is ahead of the row; the log of an
        old task is empty."""
        latest = await self.ledger.latest_events((record.id,))
        return max(record.last_event, latest.get(record.id, 0))

    async def task(self, call: OperationCall, task_id: str, history_length: int | None = None) -> Task:
        """Raises: TaskNotFound."""
        run = self.run_of(call, task_id)
        if run is not None and not await self._settled(call, task_id):
            current = await self.live(run.live, history_length)
            if current is not None:
                return call.shown(*current)
        return call.shown(*await self.stored(call, task_id, history_length))

    async def _settled(self, call: OperationCall, task_id: str) -> bool:
        """Whether the ledger has the end of the turn. Lists, notifications and resumed streams may show that end before the
        process that runs the turn knows that it is stored."""
        record = await self.ledger.task(call.caller, call.agent.name, task_id)
        return record is not None and record.state in _SETTLED

    async def live(self, live: LiveTask, history_length: int | None = None) -> tuple[Task, int] | None:
        """A running task, and the number of its latest event; None when another process has ended the task."""
        task, number = live.snapshot(history_length=history_length), live.journal.number
        try:
            await live.journal.durable()
        except Conflict:
            return None
        return task, number

    async def stored(self, call: OperationCall, task_id: str, history_length: int | None = None) -> tuple[Task, int]:
        """The task as the ledger has it, and the number of its latest event. Raises: TaskNotFound."""
        try:
            found = await self.ledger.whole_task(call.caller, call.agent.name, task_id, history_length)
        except CorruptRecord:
            quarantined = await self._quarantined(call, task_id)
            if quarantined is None:
                raise
            return quarantined
        if found is None or not (found[0].visible or self.run_of(call, task_id)):
            raise not_found(task_id)
        record, turns = found
        outputs = [TurnOutput.stored(turn) for turn in turns]
        number, current = record.last_event, status_of(record)
        if turns[-1].quarantined:
            # The log of such a turn may be unreadable.
            task = assemble(record.id, record.context_id, current, outputs, history_length=history_length)
            return replace(task, metadata=(task.metadata or {}) | _QUARANTINED), number
        if not turns[-1].ended:
            # The log of a turn that has not ended holds more than the record.
            events = await self.ledger.events(record.id, record.last_event)
            size = sum(len(payload) for _, payload in events)
            number, current = await off_loop(size, _replay, outputs[-1], turns[-1], events, (number, current))
            if (
                events
                and current.state in _SETTLED
                and (await self.record(call, task_id)).last_event != record.last_event
            ):
                # The turn has ended between the two reads, and its record has what the log has not, such as its tokens.
                return await self.stored(call, task_id, history_length)
        return assemble(record.id, record.context_id, current, outputs, history_length=history_length), number

    async def _quarantined(self, call: OperationCall, task_id: str) -> tuple[Task, int] | None:
        """Reads a task whose turn is quarantined, from the row of the task alone. Raises: TaskNotFound,
        CorruptRecord."""
        record = await self.record(call, task_id)
        context = await self.ledger.context(call.caller, record.context_id, call.agent.name)
        if context is None or context.stuck != task_id:
            return None
        task = assemble(record.id, record.context_id, status_of(record), ())
        return replace(task, metadata=_QUARANTINED), record.last_event

    async def outputs(self, record: TaskRecord) -> list[TurnOutput] | None:
        """The outputs of all turns of a task that waits for its caller, or None when the last turn has not ended."""
        turns = (await self.ledger.turns((record.id,), artifacts=True))[record.id]
        return [TurnOutput.stored(turn) for turn in turns] if turns[-1].ended else None

    async def page(self, call: OperationCall, listed: Sequence[ListedTask], limits: PageLimits) -> list[Task]:
        """The tasks of a page, as many as fit, stored and as the caller gets them. A task that cannot be read is shown without
        its turns."""
        tasks: list[Task] = []
        stored = 0
        for each in listed:
            task, size = await self._listed(each, limits)
            if tasks and stored + size > limits.size:
                break
            stored += size
            tasks.append(task)
        if call.in_list is not None and stored * _GROWTH > limits.size:
            tasks = await off_loop(stored * _GROWTH, _fitting, tasks, call.in_list, limits.size)
        if not call.shows_generations:
            return tasks
        return [call.shown(task, each.last_event) for task, each in zip(tasks, listed, strict=False)]

    async def _listed(self, listed: ListedTask, limits: PageLimits) -> tuple[Task, int]:
        """A task as a page has it, and what was read of it in bytes."""
        record, turns, size = listed.record, listed.turns, listed.size
        history, artifacts = limits.history, limits.artifacts
        if isinstance(turns, CorruptRecord):
            return self._unreadable(record, turns), size
        outputs = [TurnOutput.stored(turn) for turn in turns]
        try:
            if record.state in INTERRUPTED and (artifacts or history != 0):
                size += await self._replay_paused(record, turns, outputs)
        except CorruptRecord as error:
            return self._unreadable(record, error), size
        status = status_of(record)
        task = assemble(record.id, record.context_id, status, outputs, history_length=history, artifacts=artifacts)
        return task, size

    def _unreadable(self, record: TaskRecord, error: CorruptRecord) -> Task:
        """The task from its row alone. The log has the reason under the correlation id of the task's metadata."""
        correlation_id = self.runner.runtime.clock.correlation_id()
        log.error("task.unreadable", task=record.id, correlation_id=correlation_id, error=str(error))
        task = assemble(record.id, record.context_id, status_of(record), ())
        return replace(task, metadata={"unreadable": True, "correlationId": correlation_id})

    async def _replay_paused(self, record: TaskRecord, turns: Sequence[TurnRecord], outputs: list[TurnOutput]) -> int:
        """A running turn shows only its message in a list, because the rest is about to change; a paused turn shows
        everything. Returns the bytes that were read for it. Raises: CorruptRecord."""
        if not turns or turns[-1].ended:
            return 0
        events = await self.ledger.events(record.id, record.last_event)
        size = sum(len(payload) for _, payload in events)
        await off_loop(size, _replay, outputs[-1], turns[-1], events, (0, status_of(record)))
        return size

    async def at_event(
        self, call: OperationCall, record: TaskRecord, number: int, subscription: Subscription
    ) -> tuple[Task, list[Frame], int]:
        """The task right after event `number`, later events, and the number of the last one that was read. Where the log has
        more, the subscription has fallen behind.

        Raises: InvalidParams for a number that no event has.
        """
        most = subscription.limits.bytes
        events = await self.ledger.events(record.id, 0, most)
        latest, at = 0, None
        began = status(record.state, timestamp(record.created_at))
        empty = Task(id=record.id, context_id=record.context_id, status=began)
        while True:
            if events and events[0][0] == latest + 1:
                latest = events[-1][0]
            else:
                events = ()
                ended = record.last_event if record.state in TERMINAL else 0
                if ended and number <= ended:
                    return await self._result(call, record, subscription)
                latest = max(latest, ended)
            size = sum(len(payload) for _, payload in events)
            if size >= most:
                subscription.fall_behind()
            elif latest < number:
                raise invalid("Last-Event-ID", f"{number} is beyond the task's last event, {latest}")
            if at is None:
                turns = (await self.ledger.turns((record.id,), artifacts=False))[record.id]
                at = TaskAt(empty, turns, number)
            await off_loop(size, at.apply, events)
            if latest >= number:
                return call.shown(at.made(), number), [frame for frame in events if frame[0] > number], latest
            events = await self.ledger.events(record.id, latest, most)

    async def _result(
        self, call: OperationCall, record: TaskRecord, subscription: Subscription
    ) -> tuple[Task, list[Frame], int]:
        """Retention deleted the events: the caller gets their result, however many it has read."""
        subscription.catch_up()
        turns = (await self.ledger.turns((record.id,), artifacts=True))[record.id]
        outputs = [TurnOutput.stored(turn) for turn in turns]
        task = assemble(record.id, record.context_id, status_of(record), outputs)
        return call.shown(task, record.last_event), [], record.last_event


def _fitting(tasks: list[Task], in_list: Callable[[Task], int], room: int) -> list[Task]:
    """The tasks up to the first that does not fit. One task is always there."""
    for at, task in enumerate(tasks):
        if room <= 0:
            return tasks[:at]
        room -= in_list(task)
        if room < 0 and at:
            return tasks[:at]
    return tasks


def _replay(
    output: TurnOutput, turn: TurnRecord, events: Sequence[tuple[int, bytes]], at: tuple[int, TaskStatus]
) -> tuple[int, TaskStatus]:
    """Applies the log of an open turn to its output. Returns the number of its latest event and the status of the task.

    `at` is the same before these events. Raises: CorruptRecord.
    """
    number, current = at
    for number, update in replay_events(output, turn, events):  # noqa: B007 - the last one counts
        current = status_after(update, current)
        if _ends(update):  # later events belong to the next turn
            break
    return number, current


def _ends(update: Update) -> bool:
    """Whether the turn has ended with this event."""
    return isinstance(update, TaskStatusUpdateEvent) and update.status.state in _SETTLED and not pauses(update)


def status_of(record: TaskRecord) -> TaskStatus:
    return TaskStatus(state=record.state, timestamp=timestamp(record.status_at), message=record.status_message)
