"""Service calls: the commit points from the request to its end, and what is read of those that were made."""

import msgspec

from gateway.a2a.model import Json
from gateway.ledger.tasks import EventRow
from gateway.ports.conversation import Item

RESTARTED = "gateway-restarted"
"""The error class of a call whose process has ended; no adapter reports it."""


class NewItem(msgspec.Struct, frozen=True):
    """An item to append to the thread of its commit point. `tool_call`: the id of the NewToolCall that it belongs to.

    `unsent`: the completed call did not carry it, the next one has to.
    """

    item: Item
    provider_id: str | None = None
    tool_call: str | None = None
    replayable: bool = True
    unsent: bool = False


class NewToolCall(msgspec.Struct, frozen=True):
    """A tool call of a completed service call; `outcome` is that of one that has ended. `id` is the public one.

    `asked`: it needs a yes before it runs; `digest` is of what that yes is for. `expires_at`: nobody waits longer for its
    caller. `server`: where the tool is, as callers see it. `runs_left`: so often may it be started in all.
    """

    id: str
    sequence: int
    external_id: str
    name: str
    arguments: str
    executor: str
    status: str
    outcome: Json
    asked: bool = False
    digest: str | None = None
    expires_at: int | None = None
    server: str | None = None
    runs_left: int = 1


class Prepare(msgspec.Struct, frozen=True):
    """C2: a service call is about to be made, by the holder of the thread's lease."""

    thread: str
    generation: int
    holder: str
    lease_until: int
    turn: str
    task: str
    service_call: str
    round: int
    attempt: int
    handle_in: str | None
    now: int
    event: EventRow | None


class Pending(msgspec.Struct, frozen=True):
    """Between C2 and C3: the backend has named the handle that this call may lead to."""

    service_call: str
    handle: str


class Complete(msgspec.Struct, frozen=True):
    """C3: a service call is over and counts. `sent` are the positions of the items that its request carried.

    `weight` is that of the whole request, where the tokens in `usage` are those of it and nothing else. `state_version` is
    that of the schema of `state`.
    """

    thread: str
    generation: int
    turn: str
    service_call: str
    handle_in: str | None
    handle_out: str | None
    state: Json
    usage: Json
    items: tuple[NewItem, ...]
    tool_calls: tuple[NewToolCall, ...]
    sent: tuple[int, ...]
    now: int
    weight: int | None = None
    state_version: int = 1


class Fail(msgspec.Struct, frozen=True):
    """A service call is over and does not count: the handle stays. `items` hold what was said, not replayable."""

    thread: str
    generation: int
    turn: str
    service_call: str
    status: str
    error_class: str
    items: tuple[NewItem, ...]
    now: int


class UnheardCall(msgspec.Struct, frozen=True):
    """The latest service call of a thread whose end nobody heard. `pending`: the handle that its backend named. `displaced`:
    its turn was, and is no part of the conversation."""

    id: str
    turn: str
    round: int
    handle_in: str | None
    pending: str | None
    displaced: bool = False


class LatestCall(msgspec.Struct, frozen=True):
    """The last service call that a turn has made. `base`: the handle at which the turn began. `restarts`: how many of its
    calls were made again because their process died. `asked`: for tools that the backend does not run."""

    id: str
    round: int
    attempt: int
    status: str
    pending: str | None
    base: str | None
    restarts: int
    asked: bool


class MeasuredCall(msgspec.Struct, frozen=True):
    """What a completed service call carried, and what its backend says that it used."""

    weight: int | None
    usage: Json
