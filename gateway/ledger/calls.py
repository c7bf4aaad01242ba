"""Service calls: the commit points from the request to its end, and the records that are read.

A commit point that does not find its rows as it expects them is a Conflict; its docstring names the cases.
"""

import msgspec

from gateway.a2a.model import Json
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus
from gateway.ledger.tasks import EventRow
from gateway.ports.conversation import Item

RESTARTED = "gateway-restarted"
"""The error class of a service call whose process has died; no adapter reports it."""

CANCELLED = "cancelled"
"""The error class of a service call whose turn was cancelled; no adapter reports it."""


class NewItem(msgspec.Struct, frozen=True):
    """An item to append to the thread of its commit point. `tool_call` is the id of the NewToolCall of the item.

    `unsent` says that the completed call did not carry the item, so the next call has to carry it.
    """

    item: Item
    provider_id: str | None = None
    tool_call: str | None = None
    replayable: bool = True
    unsent: bool = False


class NewToolCall(msgspec.Struct, frozen=True):
    """A tool call of a completed service call; `outcome` is set when the tool call has ended. `id` is its public id.

    `asked` says that the call needs an approval before it runs; `digest` identifies the arguments that are approved.
    `expires_at` is the end of the caller's time for the decision. `server` is the name of the tool's server that
    callers see. `runs_left` is the number of starts that are still allowed. `asked_at` is the time at which the model had
    asked for it; `started_at` and `ended_at` are set as far as the backend ran it, or it needs no run.
    """

    id: str
    sequence: int
    external_id: str
    name: str
    arguments: str
    executor: str
    status: ToolCallStatus
    outcome: Json
    asked: bool = False
    digest: str | None = None
    expires_at: int | None = None
    server: str | None = None
    runs_left: int = 1
    asked_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None


class Prepare(msgspec.Struct, frozen=True):
    """C2: the holder of the thread's lease is about to make a service call. The first of a turn takes the lease, and conflicts
    on a thread that is unsynced."""

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


class NameCall(msgspec.Struct, frozen=True):
    """Between C2 and C3: the backend has named the handle to which this call may lead, or the call itself (`run`). None
    leaves an earlier name."""

    service_call: str
    handle: str | None
    run: str | None = None


class Complete(msgspec.Struct, frozen=True):
    """C3: a service call is complete and counts. `sent` are the positions of the items that its request carried.

    `weight` is the weight of the whole request; it is set when the tokens in `usage` are the tokens of this request
    alone. `state_version` is the version of the schema of `state`. `secret` is the adapter's secret, sealed; None leaves the
    earlier one. `first_at` is the time of the first that came of the answer.
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
    secret: str | None = None
    first_at: int | None = None


class Fail(msgspec.Struct, frozen=True):
    """A service call has failed and does not count, so the thread keeps its handle. `items` are the output so far, of which
    only the answer that a cancel interrupted is replayable. `usage` is the backend's report of tokens, if the failure
    brought one. `first_at` as in Complete."""

    thread: str
    generation: int
    turn: str
    service_call: str
    status: ServiceCallStatus
    error_class: str
    items: tuple[NewItem, ...]
    now: int
    usage: Json = None
    first_at: int | None = None


class MarkRefused(msgspec.Struct, frozen=True):
    """The backend refused the request of `service_call` because of its content: these items, which no completed call
    has carried, are left out of later requests, and the outcome of a tool call is replaced by a fixed text."""

    thread: str
    service_call: str
    positions: tuple[int, ...]


class DropPartial(msgspec.Struct, frozen=True):
    """The answer of a service call of unknown outcome is found as a whole: the part of it that was kept when the call was
    cancelled is no longer a part of the conversation."""

    thread: str
    service_call: str


class SetAside(msgspec.Struct, frozen=True):
    """The backend refused the request of `service_call` because of these items of whole turns, although it had accepted
    earlier requests with them: later requests do without them."""

    thread: str
    service_call: str
    positions: tuple[int, ...]


class GiveBack(msgspec.Struct, frozen=True):
    """These items were set aside together with others, and are not at fault: later requests carry them again."""

    thread: str
    positions: tuple[int, ...]


class UnknownCall(msgspec.Struct, frozen=True):
    """The latest service call of a thread with an unknown outcome. `pending` is the handle that its backend named, `run` its
    name for the call itself. `displaced` says that the turn of the call was displaced and is not part of the
    conversation."""

    id: str
    turn: str
    round: int
    handle_in: str | None
    pending: str | None
    displaced: bool = False
    run: str | None = None


class LatestCall(msgspec.Struct, frozen=True):
    """The last service call of a turn. `pending` and `run` are the names that its backend gave, as in UnknownCall. `base` is
    the handle at which the turn began. `restarts` is the number of the turn's service calls that were repeated because
    their process died. `asked` says that the call made tool calls that the backend does not run."""

    id: str
    round: int
    attempt: int
    status: ServiceCallStatus
    pending: str | None
    base: str | None
    restarts: int
    asked: bool
    run: str | None = None


class MeasuredCall(msgspec.Struct, frozen=True):
    """The weight that a completed service call carried, and the usage that its backend reported."""

    weight: int | None
    usage: Json
