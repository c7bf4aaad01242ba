"""What runs here, held in memory while it runs: the tasks, their turns, and the lanes that put turns of one thread in a
row. Law: all of it can be rebuilt from the ledger; nothing here decides what was said."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from gateway.a2a.model import Message, Task, TaskState, TaskStatus
from gateway.a2a.tool_calls import Rendering
from gateway.core.agents import Agent
from gateway.core.replay import ShownOutput
from gateway.core.task_record import TurnOutput, assemble
from gateway.core.tools.tool_call import ToolCall
from gateway.engine.journal import Journal
from gateway.ledger.threads import Caller, ThreadRecord


@dataclass(slots=True)
class LiveTask:
    """A task with a turn that waits or runs. The last of `outputs` is that turn's."""

    id: str
    context_id: str
    agent: str
    caller: Caller
    status: TaskStatus
    outputs: list[TurnOutput]
    journal: Journal

    def snapshot(self, *, history_length: int | None = None, artifacts: bool = True) -> Task:
        return assemble(
            self.id, self.context_id, self.status, self.outputs, history_length=history_length, artifacts=artifacts
        )


@dataclass(frozen=True, slots=True)
class Rejoined:
    """The service call of a turn that was taken over: the one under way, to be listened to again by its `pending` handle, or
    without one the call that is to be made next. `before`: what the turn had shown when the call began."""

    round: int
    attempt: int
    pending: str | None
    before: ShownOutput


@dataclass(slots=True)
class TurnRun:
    """One accepted turn. `opened` tells how the agent answers: None for a task, else the bare message.

    `prepared`: `service_call` is stored and under way; C2 may come in the same unit as C1. `resumed`: the turn waited for
    its caller, and goes on with these tool calls of that service call; `base` is the handle at which it began. `rejoined`:
    the process that ran it died, and it goes on in this call. `begun`: its code runs, so that cancelling `task` reaches it.
    `rendering` is what the sender of the message sees of tool calls, `repeats_answer`: it gets the answer whole when it is
    complete.
    """

    turn: str
    agent: Agent
    caller: Caller
    live: LiveTask
    message: Message
    first_message: Message
    accepted_output_modes: tuple[str, ...]
    fresh_thread: bool
    opened: asyncio.Future[Message | None]
    done: asyncio.Future[None]
    rendering: Rendering = field(default_factory=Rendering)
    repeats_answer: bool = False
    service_call: str = ""
    prepared: bool = False
    resumed: tuple[ToolCall, ...] = ()
    base: str | None = None
    rejoined: Rejoined | None = None
    task: asyncio.Task[None] | None = None
    begun: bool = False
    cancel_asked: bool = False

    @property
    def may_reply(self) -> bool:
        """The agent may answer with a bare message: never in a task that is known already."""
        return self.agent.policies.direct_replies and len(self.live.outputs) == 1

    @property
    def public(self) -> bool:
        """The turn makes a task that its caller may know of."""
        return not self.may_reply or (self.opened.done() and self.opened.result() is None)

    async def reply(self) -> Message | None:
        """The bare message that is the answer, None when there is a task."""
        return await asyncio.shield(self.opened) if self.may_reply else None

    async def ended(self) -> None:
        """Returns when the turn has ended. Whoever waits may go away without a trace."""
        await asyncio.shield(self.done)


@dataclass(slots=True, eq=False)
class ThreadQueue:
    """The turns of one thread, one after another. `thread` is its row as the last commit left it, if `current`.

    `leased`: the last commit that said so left the lease with this process. `parked`: none of them can begin, because an
    earlier one waits for its caller. `beside`: all lanes of the thread here, this one among them.
    """

    thread: ThreadRecord
    current: bool
    leased: bool = False
    parked: bool = False
    waiting: deque[TurnRun] = field(default_factory=deque)
    running: TurnRun | None = None
    beside: list["ThreadQueue"] = field(default_factory=list, repr=False)

    @property
    def may_release(self) -> bool:
        """No turn of another lane needs the lease, which is one for all of the process."""
        return not any(lane.leased and lane.running is not None for lane in self.beside if lane is not self)

    @property
    def length(self) -> int:
        return len(self.waiting) + (self.running is not None)


def status(state: TaskState, moment: str, message: Message | None = None) -> TaskStatus:
    return TaskStatus(state=state, message=message, timestamp=moment)
