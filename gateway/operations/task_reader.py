"""Cursors of ListTasks. Law: a token is opaque, signed, and good only for its own caller, agent and filter.

Tasks as their callers see them, read from what runs here or from the ledger. Law: what is shown is stored.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

import msgspec
import structlog
from msgspec.structs import replace

from gateway.a2a.errors import invalid
from gateway.a2a.model import (
    INTERRUPTED,
    TERMINAL,
    Json,
    ListTasksRequest,
    Message,
    Task,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.core.task_record import TurnOutput, assemble, pauses, replay
from gateway.engine.turn_run import LiveTask, TurnRun, status
from gateway.foundation.clock import timestamp
from gateway.ledger.errors import Conflict, CorruptRecord
from gateway.ledger.events import Frame, Update, logged
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import TaskRecord
from gateway.operations.api import OperationCall
from gateway.operations.target import not_found
from gateway.scheduling.runner import Runner

_SIGNATURE = 16


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    status_at: int
    task: str


def _signature(secret: bytes, call: OperationCall, request: ListTasksRequest, payload: bytes) -> bytes:
    scope = msgspec.json.encode(
        [
            call.caller.tenant,
            call.caller.principal,
            call.agent.name,
            request.context_id,
            request.status,
            request.status_timestamp_after,
        ]
    )
    return hmac.digest(secret, scope + b"\n" + payload, hashlib.sha256)[:_SIGNATURE]


def encode(secret: bytes, call: OperationCall, request: ListTasksRequest, last: tuple[int, str]) -> str:
    payload = msgspec.json.encode(_Cursor(*last))
    return base64.urlsafe_b64encode(_signature(secret, call, request, payload) + payload).decode().rstrip("=")


def decode(secret: bytes, call: OperationCall, request: ListTasksRequest) -> tuple[int, str] | None:
    """(status_at, id) of the last task of the page before. Raises: InvalidParams."""
    token = request.page_token
    if not token:
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        payload = raw[_SIGNATURE:]
        if not hmac.compare_digest(raw[:_SIGNATURE], _signature(secret, call, request, payload)):
            raise ValueError("the signature does not fit")
        cursor = msgspec.json.decode(payload, type=_Cursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise invalid(
            "pageToken", "is not a token of this list; it must come from a response with the same filter"
        ) from error
    return cursor.status_at, cursor.task


log = structlog.get_logger("gateway.operations.task_reader")

_SETTLED = TERMINAL | INTERRUPTED

_ASIDE: dict[str, Json] = {"quarantined": True}
"""Of a task whose turn nobody could end: what its turn has shown is left out."""


class TaskReader:
    def __init__(self, ledger: Ledger, runner: Runner) -> None:
        self._ledger = ledger
        self._runner = runner

    def work(self, call: OperationCall, task_id: str) -> TurnRun | None:
        """The turn that waits or runs here, if its task is one that this caller may know of."""
        work = self._runner.run_of(task_id)
        if work is None or work.caller != call.caller or work.agent.name != call.agent.name or not work.public:
            return None
        return work

    async def record(self, call: OperationCall, task_id: str) -> TaskRecord:
        """Raises: TaskNotFound, also for another caller's."""
        record = await self._ledger.task(call.caller, call.agent.name, task_id)
        if record is None or not (record.visible or self.work(call, task_id)):
            raise not_found(task_id)
        return record

    async def reply(self, call: OperationCall, task_id: str) -> Message | None:
        """The bare message with which the agent answered instead of making this task known."""
        record = await self._ledger.task(call.caller, call.agent.name, task_id)
        return record.status_message if record is not None and not record.visible else None

    async def task(self, call: OperationCall, task_id: str, history_length: int | None = None) -> Task:
        """Raises: TaskNotFound."""
        work = self.work(call, task_id)
        if work is not None and not await self._settled(call, task_id):
            now = await self.now(work.live, history_length)
            if now is not None:
                return now[0]
        return (await self.stored(call, task_id, history_length))[0]

    async def _settled(self, call: OperationCall, task_id: str) -> bool:
        """The ledger has the end of the turn. Lists, notifications and resumed streams may have shown it before the process
        that runs the turn is told that it is stored."""
        record = await self._ledger.task(call.caller, call.agent.name, task_id)
        return record is not None and record.state in _SETTLED

    async def now(self, live: LiveTask, history_length: int | None = None) -> tuple[Task, int] | None:
        """A running task as it stands, and the number of its latest event; None when another process has ended it."""
        task, number = live.snapshot(history_length=history_length), live.journal.number
        try:
            await live.journal.durable()
        except Conflict:
            return None
        return task, number

    async def stored(self, call: OperationCall, task_id: str, history_length: int | None = None) -> tuple[Task, int]:
        """The task as the ledger has it, and the number of its latest event. Raises: TaskNotFound."""
        try:
            found = await self._ledger.whole_task(call.caller, call.agent.name, task_id)
        except CorruptRecord:
            aside = await self._aside(call, task_id)
            if aside is None:
                raise
            return aside
        if found is None or not (found[0].visible or self.work(call, task_id)):
            raise not_found(task_id)
        record, turns = found
        outputs = [TurnOutput.stored(turn) for turn in turns]
        number, current = record.last_event, status_of(record)
        if turns[-1].aside:
            # Its log may be what nobody could read and live.
            task = assemble(record.id, record.context_id, current, outputs, history_length=history_length)
            return replace(task, metadata=_ASIDE), number
        if not turns[-1].ended:
            # Of a turn that has not ended the log holds more than the record.
            events = await self._ledger.events(record.id, record.last_event)
            for number, update in replay(outputs[-1], turns[-1], events):  # noqa: B007 - the last one counts
                current = _status_behind(update, current)
                if _ends(update):  # what follows belongs to a later turn
                    break
        return assemble(record.id, record.context_id, current, outputs, history_length=history_length), number

    async def _aside(self, call: OperationCall, task_id: str) -> tuple[Task, int] | None:
        """Of a task whose turn was put aside what its row tells. Raises: TaskNotFound, CorruptRecord."""
        record = await self.record(call, task_id)
        context = await self._ledger.context(call.caller, record.context_id, call.agent.name)
        if context is None or context.stuck != task_id:
            return None
        return replace(
            assemble(record.id, record.context_id, status_of(record), ()), metadata=_ASIDE
        ), record.last_event

    async def outputs(self, record: TaskRecord) -> list[TurnOutput] | None:
        """What each turn of a task that waits for its caller has shown; None: the last of them has not ended."""
        turns = (await self._ledger.turns((record.id,), artifacts=True))[record.id]
        return [TurnOutput.stored(turn) for turn in turns] if turns[-1].ended else None

    async def listed(self, records: Sequence[TaskRecord], artifacts: bool) -> dict[str, list[TurnOutput]]:
        """What each turn of these tasks has shown; nothing of a task that cannot be read: the others are told all the same."""
        try:
            return await self._outputs(records, artifacts)
        except CorruptRecord:
            found: dict[str, list[TurnOutput]] = {}
        for record in records:
            try:
                found |= await self._outputs((record,), artifacts)
            except CorruptRecord as error:
                log.error("task.unreadable", task=record.id, error=str(error))
                found[record.id] = []
        return found

    async def _outputs(self, records: Sequence[TaskRecord], artifacts: bool) -> dict[str, list[TurnOutput]]:
        """Of a turn that runs its message, as the rest is about to change; of one that waits, all."""
        turns = await self._ledger.turns(tuple(record.id for record in records), artifacts)
        found = {task_id: [TurnOutput.stored(turn) for turn in of_task] for task_id, of_task in turns.items()}
        for record in records:
            of_task = turns[record.id]
            if record.state in INTERRUPTED and of_task and not of_task[-1].ended:
                events = await self._ledger.events(record.id, record.last_event)
                for _ in replay(found[record.id][-1], of_task[-1], events):
                    pass
        return found

    async def as_of(self, record: TaskRecord, number: int) -> tuple[Task, list[Frame], int]:
        """The task as it stood when event `number` had happened, the later events, and the latest number.

        Raises: InvalidParams for a number that no event has.
        """
        events = await self._ledger.events(record.id, 0)
        latest = events[-1][0] if events else record.last_event if record.state in TERMINAL else 0
        if number > latest:
            raise invalid("Last-Event-ID", f"{number} is behind the task's last event, {latest}")
        if not events and latest:
            # Its events are over their time: what they led to is all that can be told, behind whatever was read of them.
            turns = (await self._ledger.turns((record.id,), artifacts=True))[record.id]
            outputs = [TurnOutput.stored(turn) for turn in turns]
            return assemble(record.id, record.context_id, status_of(record), outputs), [], latest
        turns = (await self._ledger.turns((record.id,), artifacts=False))[record.id]
        openings = [(turn.event, turn.message) for turn in turns if turn.event <= number or turn is turns[0]]
        answers = [answer for turn in turns for answer in turn.answers if answer[0] <= number]
        updates = [(at, logged(payload)) for at, payload in events[: max(number, 1)]]
        first = status(_first_state(record, updates), timestamp(record.status_at))
        current, outputs = _fold(first, openings, answers, updates[:number])
        return assemble(record.id, record.context_id, current, outputs), list(events[number:]), latest


def _status_behind(update: Update, current: TaskStatus) -> TaskStatus:
    """What an agent says on the way is history; what it asks is not."""
    if not isinstance(update, TaskStatusUpdateEvent):
        return current
    if update.status.state is TaskState.WORKING:
        return current if current.state is TaskState.WORKING else replace(update.status, message=None)
    return update.status if update.status.state is not current.state or pauses(update) else current


def _ends(update: Update) -> bool:
    """Whether the turn has ended with it."""
    return isinstance(update, TaskStatusUpdateEvent) and update.status.state in _SETTLED and not pauses(update)


def _fold(
    current: TaskStatus,
    openings: Sequence[tuple[int, Message]],
    answers: Sequence[tuple[int, Message]],
    updates: Sequence[tuple[int, Update]],
) -> tuple[TaskStatus, list[TurnOutput]]:
    """`openings` are (number of the task's latest event when it was accepted, message) of each turn, `answers` (number of
    the event behind it, message) of each further one."""
    outputs = [TurnOutput(openings[0][1])]
    waiting, further = list(openings[1:]), list(answers)
    for number, update in updates:
        while waiting and waiting[0][0] <= number:
            outputs.append(TurnOutput(waiting.pop(0)[1]))
        while further and further[0][0] <= number:
            outputs[-1].say(further.pop(0)[1])
        outputs[-1].apply(update)
        current = _status_behind(update, current)
    return current, outputs


def _first_state(record: TaskRecord, updates: Sequence[tuple[int, Update]]) -> TaskState:
    """A task that had to wait for its turn says in its first event that it works."""
    if not updates:
        return record.state
    match updates[0][1]:
        case TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.WORKING, message=None), metadata=None):
            return TaskState.SUBMITTED
        case _:
            return TaskState.WORKING


def status_of(record: TaskRecord) -> TaskStatus:
    return status(record.state, timestamp(record.status_at), record.status_message)
