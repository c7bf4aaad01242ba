"""The turns of this process in memory, from their acceptance to their end: each with its task, in a queue of its thread.

Law: all of it can be rebuilt from the ledger.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import Json, Message, Task, TaskState, TaskStatus, TaskStatusUpdateEvent
from gateway.a2a.tool_calls import Rendering, rendering
from gateway.core import ownership, usage
from gateway.core.agents import Agent
from gateway.core.replay import ShownOutput
from gateway.core.task_record import TurnOutput, assemble, replay_events, suits_adk
from gateway.core.tools.tool_call import ToolCall
from gateway.engine.journal import Journal
from gateway.foundation.clock import timestamp
from gateway.ledger.events import Update
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import TaskRecord
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.traces import RecordedTurn
from gateway.ledger.turns import Preferences
from gateway.ports.capabilities import Ongoing
from gateway.ports.wire import Occasion

if TYPE_CHECKING:
    from gateway.engine.turn_spans import TurnSpans


def status(state: TaskState, moment: str, message: Message | None = None) -> TaskStatus:
    return TaskStatus(state=state, message=message, timestamp=moment)


class LiveTask(msgspec.Struct):
    """A task with a turn that waits or runs. The last of `outputs` is that turn's."""

    id: str
    context_id: str
    status: TaskStatus
    outputs: list[TurnOutput]
    journal: Journal

    @classmethod
    def stored(cls, task: TaskRecord, outputs: list[TurnOutput], journal: Journal) -> "LiveTask":
        shown = status(task.state, timestamp(task.status_at), task.status_message)
        return cls(task.id, task.context_id, shown, outputs, journal)

    def apply(self, update: TaskStatusUpdateEvent) -> None:
        self.outputs[-1].apply(update)
        self.status = update.status

    def count(self, points: Iterable[CommitPoint]) -> None:
        """The service calls that end in these points are stored."""
        output = self.outputs[-1]
        output.usage = usage.total((output.usage, usage.reported(points)))

    def snapshot(self, *, history_length: int | None = None, artifacts: bool = True) -> Task:
        return assemble(
            self.id, self.context_id, self.status, self.outputs, history_length=history_length, artifacts=artifacts
        )


def status_update(
    task: LiveTask | TaskRecord, following: TaskStatus, metadata: dict[str, Json] | None = None
) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(
        task_id=task.id, context_id=task.context_id, status=following, metadata=metadata or None
    )


class StoredTask(msgspec.Struct, frozen=True):
    """A task as the ledger holds it. `outputs` are the outputs of the task's turns. `updates` are the updates of the
    last turn in the log, and `number` is the number of the task's latest event."""

    outputs: list[TurnOutput]
    updates: list[Update]
    number: int
    ended: bool

    @classmethod
    async def read(cls, ledger: Ledger, task: TaskRecord) -> "StoredTask":
        """Raises: LedgerUnavailable, CorruptRecord."""
        turns = (await ledger.turns((task.id,), artifacts=True))[task.id]
        outputs = [TurnOutput.stored(turn) for turn in turns]
        if turns[-1].ended:
            return cls(outputs, [], task.last_event, True)
        events = await ledger.events(task.id, task.last_event)
        updates = [update for _, update in replay_events(outputs[-1], turns[-1], events)]
        return cls(outputs, updates, events[-1][0] if events else task.last_event, False)


class ResumePoint(msgspec.Struct, frozen=True):
    """The place where a turn that was taken over continues. With `names`, this is the service call under way that has these
    names; if `unnamed`, one that has to be found first; else it is the service call that has to be made next. `before` is the
    output that the turn had shown when that call began."""

    round: int
    attempt: int
    names: Ongoing | None
    before: ShownOutput
    unnamed: bool = False

    @property
    def listens(self) -> bool:
        """The call was made before."""
        return self.names is not None or self.unnamed


@dataclass(slots=True)
class TurnRun:
    """One accepted turn, in a queue or running.

    `response` is how the agent answers: None for a task, which the ledger shows then, else the message without a task.
    `hidden` says that the caller knows of no task yet. `left` says that the turn has left this process before that was
    decided. `rendering` is the form in which the sender of the message sees tool calls. `repeats_answer` says that the
    sender gets the complete answer again at its end, `marks_thoughts` that notes are marked for Google ADK. `shown` is the
    rendering of a turn that was paused, whose answer is not repeated.

    `prepared` says that `service_call` is stored and under way; C2 may be in the same unit as C1. `open_calls` are the
    tool calls of that service call with which a paused turn continues. `base` is the handle at which the turn began.
    `resume_point` is set when the process that ran the turn died, `to_be_cancelled` when a cancel had been requested there. The
    runner sets the other fields. `entered` says that
    the turn's code runs, so that cancelling `task` reaches it. `fault` is why the turn has left this process without an end
    that is stored: Conflict where another process has it, else recovery ends it.

    `occasion` has the ids of the turn for recordings, and outlives it.

    Where spans are wanted, `trace` is the caller's trace, as in Accept, `accepted_at` the time of a turn that was accepted
    here, `recorded` what the ledger knows of one that goes on here, and `spans` the spans of the running turn.
    """

    turn: str
    agent: Agent
    caller: Caller
    live: LiveTask
    preferences: InitVar[Preferences]
    shown: InitVar[Rendering | None]
    hidden: InitVar[bool]
    fresh_thread: bool = False
    prepared: bool = False
    open_calls: tuple[ToolCall, ...] = ()
    base: str | None = None
    resume_point: ResumePoint | None = None
    to_be_cancelled: bool = False
    response: asyncio.Future[Message | None] = field(default_factory=asyncio.Future)
    left: bool = False
    done: asyncio.Future[None] = field(default_factory=asyncio.Future)
    task: asyncio.Task[None] | None = None
    entered: bool = False
    began: float = 0.0
    cancel_requested: bool = False
    fault: Exception | None = None
    trace: str | None = None
    accepted_at: int = 0
    recorded: RecordedTurn | None = None
    spans: "TurnSpans | None" = None
    occasion: Occasion = field(init=False)
    accepted_output_modes: tuple[str, ...] = field(init=False)
    rendering: Rendering = field(init=False)
    repeats_answer: bool = field(init=False)
    marks_thoughts: bool = field(init=False)

    def __post_init__(self, preferences: Preferences, shown: Rendering | None, hidden: bool) -> None:
        self.occasion = Occasion(self.agent.name, self.live.context_id, self.live.id, self.turn)
        policies, named = self.agent.policies, preferences.named
        self.accepted_output_modes = preferences.modes
        self.rendering = shown or rendering(policies.tool_calls, self.caller.principal, named)
        self.repeats_answer = shown is None and suits_adk(policies.repeat_answer, named)
        self.marks_thoughts = suits_adk(policies.mark_thoughts, named)
        if not hidden:
            self.respond(None)

    @property
    def service_call(self) -> str:
        """The service call under way, else the last one."""
        return self.occasion.call

    @property
    def message(self) -> Message:
        """The message that opened the turn."""
        return self.live.outputs[-1].message

    @property
    def may_reply(self) -> bool:
        """The agent may answer with a bare message: never in a task that is known already."""
        return self.agent.policies.direct_replies and not self.response.done()

    @property
    def public(self) -> bool:
        """The turn makes a task that its caller may know of."""
        return self.response.done() and not self.left and self.response.result() is None

    # --- changes

    def go_on_from(self, recorded: RecordedTurn | None) -> None:
        """The turn began earlier. None where no spans are wanted, or the turn is gone."""
        if recorded is not None:
            self.recorded, self.trace = recorded, recorded.trace

    def respond(self, reply: Message | None) -> None:
        """The agent answers with this message, or with a task; the first word counts."""
        if not self.response.done():
            self.response.set_result(reply)

    def leave(self) -> None:
        """The turn does not continue in this process."""
        self.left = not self.response.done()
        self.respond(None)

    def begin_call(self, service_call: str) -> None:
        """C2 of this service call is stored."""
        self.occasion.call, self.prepared = service_call, True

    def end_call(self, *, completed: bool) -> None:
        self.prepared, self.fresh_thread = False, self.fresh_thread and not completed


class ThreadQueue(msgspec.Struct, eq=False):
    """The turns of one thread in this process, which run one after another. `thread` is the row of the thread after the
    last commit in this process, if `current`; otherwise another process may have changed the row. `leased` says that
    this process had the lease after that commit. `parked` is the task of an earlier turn that is paused, as long as no turn of
    the queue can begin for that reason. `siblings` are all queues of the thread in this process, including this queue."""

    thread: ThreadRecord
    current: bool
    leased: bool = False
    parked: str | None = None
    waiting: deque[TurnRun] = msgspec.field(default_factory=deque)
    running: TurnRun | None = None
    siblings: list["ThreadQueue"] = []

    @property
    def may_release(self) -> bool:
        """No other turn of the thread that runs here needs the lease."""
        return not any(queue.leased and queue.running is not None for queue in self.siblings if queue is not self)

    def is_last(self, run: TurnRun) -> bool:
        """No turn of the thread follows this one here."""
        return self.running is run and not self.waiting and self.may_release

    @property
    def length(self) -> int:
        return len(self.waiting) + (self.running is not None)

    def apply(self, points: Sequence[CommitPoint]) -> None:
        """These points are stored."""
        self.thread = ownership.apply_points(self.thread, points)

    def take_lease(self, thread: ThreadRecord, *, first: bool = True) -> None:
        """Records that a unit under a lease is stored on this thread. `first` says that the unit took the lease."""
        self.thread, self.leased = replace(thread, generation=thread.generation + first), True

    def park(self, run: TurnRun, behind: str) -> None:
        """The running turn cannot begin yet: the turn of the task `behind` is paused."""
        # The paused turn may be in the queue again, before all other turns.
        place = int(bool(self.waiting) and bool(self.waiting[0].open_calls))
        self.running, self.parked, self.current = None, None if place else behind, False
        self.waiting.insert(place, run)
