"""Accepted messages and turns that wait for their caller: commit points and records."""

import msgspec

from gateway.a2a.model import Message, TaskState
from gateway.ledger.tasks import EventRow
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.tool_calls import AskedCall
from gateway.ports.conversation import Item


class IdempotencyKey(msgspec.Struct, frozen=True):
    """`kind` is `header` or `message_id`: separate name spaces."""

    kind: str
    key: str


class Preferences(msgspec.Struct, frozen=True):
    """The answer that the sender of a message prefers: `modes` are media types, `named` are extensions."""

    modes: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()


class Accept(msgspec.Struct, frozen=True):
    """C1: one accepted message. `context_public` is None where the context exists.

    `working`: the new task begins at once, by the C2 in the same unit; else it is submitted. `process` will run it.
    `trace` is the caller's `traceparent`, with its `tracestate` behind a blank.
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
    trace: str | None = None


class Replay(msgspec.Struct, frozen=True):
    """The task that an idempotency key already made, and the digest of its message."""

    task: str
    digest: str


class Suspend(msgspec.Struct, frozen=True):
    """A turn waits for its caller: it has open calls that need a decision or a result. `message` is the task's question; None:
    the turn has all answers and waits to be resumed."""

    task: str
    turn: str
    thread: str
    state: TaskState
    message: Message | None
    events: EventRow | None
    now: int


class Resume(msgspec.Struct, frozen=True):
    """A turn that waited continues, on the holder's lease."""

    thread: str
    generation: int
    holder: str
    lease_until: int
    turn: str
    task: str
    now: int
    event: EventRow | None


class Verdict(msgspec.Struct, frozen=True):
    """The decision on a tool call: `approved`, `rejected` or `expired`, made `by` a principal. `digest` identifies the call.

    `always`: it holds for every call of this tool in the context.
    """

    tool_call: str
    digest: str | None
    decision: str
    by: str | None
    always: bool = False


class GivenAnswer(msgspec.Struct, frozen=True):
    """A message to a turn that waits, as its input number `ordinal`. `event` is the number of the first event after the
    message.

    `items` are the other contents of the message for the model.
    """

    message: Message
    ordinal: int
    digest: str
    key: IdempotencyKey | None
    event: int
    items: tuple[Item, ...] = ()


class Decide(msgspec.Struct, frozen=True):
    """C1 of a message to a turn that waits, or, without `answer`, the expiry of the turn's time. `context` is the id of
    the row.

    The ends of the calls that this point settles are in the same unit. `retries` are calls that waited for a consent
    and are repeated. `question` is the question that the task still asks, in `state`; `resumes` says that no call is
    open. Conflict when the turn does not wait or belongs to another caller, or when a call is already decided or
    differs from the call that was shown.
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
    resumes: bool
    now: int
    retries: tuple[str, ...] = ()
    state: TaskState = TaskState.INPUT_REQUIRED


class WaitingTurn(msgspec.Struct, frozen=True):
    """A turn that waits for its caller. `inputs` is the number of its messages, `base` the handle at which it began;
    `calls` are the tool calls of its last service call. `cancel_asked` says that a cancel was requested before the turn
    began to wait."""

    turn: str
    thread: str
    inputs: int
    base: str | None
    calls: tuple[AskedCall, ...]
    cancel_asked: bool = False
