"""Tool calls that the gateway or a caller answers: the commit points of their run, and their records."""

import msgspec

from gateway.a2a.model import Json
from gateway.ledger.calls import NewItem
from gateway.ledger.states import ToolCallStatus


class ToolStarts(msgspec.Struct, frozen=True):
    """C4: a tool call is about to run. This consumes its approval, where it needed one.

    Conflict when it runs already, has ended, or may not run.
    """

    thread: str
    generation: int
    tool_call: str
    now: int


class ToolWaits(msgspec.Struct, frozen=True):
    """C4 reverted: a running tool call did nothing yet, and waits for its user's consent at the tool's server. Its approval,
    where it needed one, is not consumed. Conflict when it does not run."""

    thread: str
    generation: int
    tool_call: str
    expires_at: int


class ToolEnds(msgspec.Struct, frozen=True):
    """C5: a tool call has its outcome, `at` this time. Conflict when it had one already."""

    thread: str
    generation: int
    turn: str
    service_call: str
    tool_call: str
    status: ToolCallStatus
    outcome: Json
    at: int
    item: NewItem


class ToolReported(msgspec.Struct, frozen=True):
    """With C3: the backend has reported the outcome of its own tool call with a later service call of the same turn, `at` this
    time. Conflict unless the outcome was not known."""

    thread: str
    generation: int
    tool_call: str
    status: ToolCallStatus
    outcome: Json
    at: int


class ToolCallRecord(msgspec.Struct, frozen=True):
    """A tool call of a turn. `round` is the number of its service call, `at` the time at which that service call was
    complete.

    `server` and `runs_left` have the meaning that they have in NewToolCall; each start uses up one run.
    """

    id: str
    service_call: str
    round: int
    at: int
    sequence: int
    external_id: str
    name: str
    arguments: str
    executor: str
    status: ToolCallStatus
    server: str | None = None
    runs_left: int = 0


class EarlierToolCall(msgspec.Struct, frozen=True):
    """An earlier tool call of the same external id, with its outcome."""

    name: str
    arguments: str
    status: ToolCallStatus
    outcome: Json


class AskedCall(msgspec.Struct, frozen=True):
    """A tool call of a turn that waits or waited, in the form in which its caller was asked about it. `decision` has
    the meaning that it has in Verdict.

    When `expires_at` is None, the call needs no answer. `outcome` is None while `call.status` is an open status.
    """

    call: ToolCallRecord
    digest: str | None
    decision: str | None
    expires_at: int | None
    outcome: Json


class StandingApproval(msgspec.Struct, frozen=True):
    """An approval of all calls of a tool at `server`, given to a call with `arguments`; `digest` identifies that call."""

    server: str | None
    digest: str
    arguments: str
