"""Accepting a message: the commit point, and what it keeps for those who send it again or want it their way."""

import msgspec

from gateway.commits.tasks import EventRow
from gateway.commits.threads import Caller, ThreadRecord
from gateway.model import Message


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
