"""What the adapter keeps of a conversation between its calls. Law: pure; it is bounded, and an unknown form counts as none.

It is the state of the thread: the latest task of the agent, the task that waits for the caller, and which task of the agent
stands for which of the gateway's.
"""

import msgspec

from gateway.a2a.model import Json, TaskStatus

_TASKS = 64
GIVEN = 128
"""The most artifacts, and tool calls, of a task that waits."""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call whose approval the agent waits for."""

    id: str
    name: str
    arguments: str
    server: str = ""


class Left(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a turn has left of an artifact. `shown` is the id under which callers have it, where that is not the agent's `id`.
    `digest` is that of its parts, and empty where they are not known; `parts` is their number, and `length` that of the text
    with which they end, or -1 where they end with something else."""

    id: str
    shown: str = ""
    digest: str = ""
    parts: int = 0
    length: int = -1


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task of the agent that waits. `ours` is the gateway's task that shows it, `since` names the status with which it
    waits. `artifacts` were given out already, and tool calls (`calls`), by their ids; `given` are the ids of those whose
    outcome has not come, under which they were given out."""

    task: str
    ours: str
    since: str = ""
    consent: bool = False
    artifacts: tuple[Left, ...] = ()
    calls: tuple[str, ...] = ()
    given: dict[str, str] = {}
    asked: tuple[Asked, ...] = ()


class ThreadState(msgspec.Struct, frozen=True, omit_defaults=True):
    """`task` is the latest task of the agent, empty where it has made none; `calls` is the number of calls, so that two states
    differ also where the agent makes no tasks. `tasks` has the agent's task for each of the gateway's, the latest last."""

    task: str = ""
    calls: int = 0
    waiting: Waiting | None = None
    tasks: dict[str, str] = {}

    def after(self, ours: str, task: str, waiting: Waiting | None) -> "ThreadState":
        """The state after a call in which the gateway's task `ours` was the agent's `task`, which is empty for none."""
        others = {key: value for key, value in self.tasks.items() if key != ours}
        tasks = {**others, ours: task} if task else others
        kept = dict(list(tasks.items())[-_TASKS:])
        return ThreadState(task or self.task, self.calls + 1, waiting, kept)

    def write(self) -> Json:
        return msgspec.json.decode(msgspec.json.encode(self))


def read(state: Json) -> ThreadState:
    try:
        return msgspec.convert(state, ThreadState) if state is not None else ThreadState()
    except msgspec.ValidationError:
        return ThreadState()


def mark(status: TaskStatus) -> str:
    """What tells a status from another of the same task; empty where nothing does."""
    message = status.message.message_id if status.message is not None else ""
    return f"{status.state} {message} {status.timestamp or ''}" if message or status.timestamp else ""


def references(state: ThreadState, ours: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The agent's tasks for those that a message of the caller refers to; those that are not known are left out."""
    found = tuple(state.tasks[each] for each in ours or () if each in state.tasks)
    return found or None
