"""Tool calls that the gateway or a caller answers: the commit points of their run, and what is read of them."""

import msgspec

from gateway.a2a.model import Json
from gateway.ledger.calls import NewItem

OPEN = frozenset({"announced", "pending_approval", "approved", "running", "pending_consent"})
"""The states of a call that has no outcome yet, in the ledger's words."""


class ToolStarts(msgspec.Struct, frozen=True):
    """C4: a tool call is about to run. Its approval, where it needed one, is used up by this.

    Hits no row when it runs already, has ended, or may not run.
    """

    thread: str
    generation: int
    tool_call: str
    now: int


class ToolWaits(msgspec.Struct, frozen=True):
    """C4 taken back: a tool call that runs did nothing, and waits for its user's consent elsewhere. Its approval, where it
    needed one, is not used up. Hits no row when it does not run."""

    thread: str
    generation: int
    tool_call: str
    expires_at: int


class ToolEnds(msgspec.Struct, frozen=True):
    """C5: a tool call has its outcome. Hits no row when it had one already."""

    thread: str
    generation: int
    turn: str
    service_call: str
    tool_call: str
    status: str
    outcome: Json
    item: NewItem


class ToolCallRecord(msgspec.Struct, frozen=True):
    """A tool call of a turn. `round` is the number of its service call, `at` when that was complete.

    `server` and `runs_left` as in NewToolCall; each start has taken one.
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
    status: str
    server: str | None = None
    runs_left: int = 0


class EarlierToolCall(msgspec.Struct, frozen=True):
    """What a tool call of the same external id was, and what came of it."""

    name: str
    arguments: str
    status: str
    outcome: Json


class AskedCall(msgspec.Struct, frozen=True):
    """A tool call of a turn that waits or waited, as its caller was asked about it. `decision` as in Verdict.

    `expires_at` None: nobody has to answer. `outcome` is None while `call.status` is an open one.
    """

    call: ToolCallRecord
    digest: str | None
    decision: str | None
    expires_at: int | None
    outcome: Json


class StandingApproval(msgspec.Struct, frozen=True):
    """A yes for always: to a tool at `server`, when it was called with `arguments`; `digest` is of what was asked."""

    server: str | None
    digest: str
    arguments: str
