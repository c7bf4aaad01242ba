"""What the adapter keeps from one call of a thread to the next: the open questions, the calls that wait for them, the end of
the thread. Law: a question belongs to its task; to a message of any other task it is void.
"""

import msgspec

from adapters.langgraph.interrupts import Asked
from gateway.a2a.model import Json


class HeldCall(msgspec.Struct, frozen=True):
    """A tool call of the model that has no result yet, because the graph asks first."""

    id: str
    name: str
    arguments: str


class ThreadState(msgspec.Struct, frozen=True, omit_defaults=True):
    """`last` is the id of the last message of the thread that was seen. `run` is the run that asked, in the task `task`.
    `unsent` are messages of the caller, as they are sent, that wait until the graph takes messages again."""

    last: str = ""
    task: str = ""
    run: str = ""
    asked: tuple[Asked, ...] = ()
    calls: tuple[HeldCall, ...] = ()
    unsent: tuple[dict[str, Json], ...] = ()

    @property
    def stored(self) -> Json:
        return msgspec.json.decode(msgspec.json.encode(self))


NOTHING = ThreadState()


def read(state: Json) -> ThreadState:
    return NOTHING if state is None else msgspec.convert(state, ThreadState)
