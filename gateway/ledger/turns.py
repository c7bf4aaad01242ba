"""Accepting a message: the commit point, and what it keeps for those who send it again or want it their way.

Turns that wait for their caller: the commit points from the question to going on, and what is read of them.
"""

import msgspec

from gateway.a2a.model import Message, TaskState
from gateway.ledger.tasks import EventRow
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.tool_calls import AskedCall
from gateway.ports.conversation import Item


class IdempotencyKey(msgspec.Struct, frozen=True):
    """`kind` is `header` or `message_id`: two name spaces that never meet."""

    kind: str
    key: str


class Preferences(msgspec.Struct, frozen=True):
    """How the sender of a message wants its answer: in these media types, with these extensions."""

    modes: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()


class Accept(msgspec.Struct, frozen=True):
    """C1: one accepted message. `context_public` is None where the context exists.

    `working`: the new task begins at once, as C2 in the same unit says; else it is submitted. `process` will run it.
    """

    caller: Caller
    agent: str
    now: int
    context_row: str
    context_public: str | None
    thread: ThreadRecord
    new_thread: bool
    task: str
    new_task: bool
    visible: bool
    turn: str
    message: Message
    digest: str
    key: IdempotencyKey | None
    event: EventRow | None
    last_event: int
    working: bool = False
    process: str = ""
    preferences: Preferences = Preferences()


class Replay(msgspec.Struct, frozen=True):
    """What an idempotency key already led to."""

    task: str
    digest: str


class Suspend(msgspec.Struct, frozen=True):
    """A turn waits for its caller: it has open calls that need a decision or a result. The task says so; without `message`
    the turn has all its answers, and only waits to be taken up."""

    task: str
    turn: str
    thread: str
    state: TaskState
    message: Message | None
    events: EventRow | None
    now: int


class Resume(msgspec.Struct, frozen=True):
    """A turn that waited goes on, on the holder's lease. `process` runs it."""

    thread: str
    generation: int
    holder: str
    lease_until: int
    turn: str
    task: str
    now: int
    event: EventRow | None


class Verdict(msgspec.Struct, frozen=True):
    """The decision on a tool call: `approved`, `rejected` or `expired`, and who made it. `digest` is of what was asked.

    `always`: it holds for every call of this tool that the context sees.
    """

    tool_call: str
    digest: str | None
    decision: str
    by: str | None
    always: bool = False


class GivenAnswer(msgspec.Struct, frozen=True):
    """A message to a turn that waits, as its input number `ordinal`. `event`: the number of the first event behind it.

    `items`: what it says to the model besides.
    """

    message: Message
    ordinal: int
    digest: str
    key: IdempotencyKey | None
    event: int
    items: tuple[Item, ...] = ()


class Decide(msgspec.Struct, frozen=True):
    """C1 of a message to a turn that waits, or the end of its patience (without `answer`). `context` is the row's id.

    It goes with the ends of the calls that this settles. `retries`: calls that waited for a consent and are made again.
    `question`: what the task still asks, in this state; `goes_on`: it asks nothing any more. Hits no row when the turn waits
    no more, is another caller's, or a call was decided, or is not what was asked about.
    """

    caller: Caller
    agent: str
    context: str
    thread: str
    generation: int
    task: str
    turn: str
    answer: GivenAnswer | None
    verdicts: tuple[Verdict, ...]
    question: Message | None
    goes_on: bool
    now: int
    retries: tuple[str, ...] = ()
    state: TaskState = TaskState.INPUT_REQUIRED


class WaitingTurn(msgspec.Struct, frozen=True):
    """A turn that waits for its caller. `inputs` is the number of messages that it has, `base` the handle at which it
    began, `calls` are those of its last service call. `cancel_asked`: it was to end, and came to wait all the same."""

    turn: str
    thread: str
    inputs: int
    base: str | None
    calls: tuple[AskedCall, ...]
    cancel_asked: bool = False
