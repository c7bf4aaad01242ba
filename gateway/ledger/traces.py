"""What the ledger knows of the times of a turn, for spans that its own process could not tell."""

import msgspec

from gateway.a2a.model import Json
from gateway.ledger.states import ToolCallStatus, TurnStatus


class RecordedCall(msgspec.Struct, frozen=True):
    """A try of a service call. `began`, `first` (the first of the answer) and `ended` are milliseconds since 1970."""

    round: int
    attempt: int
    error_class: str | None
    began: int
    first: int | None
    ended: int | None
    usage: Json


class RecordedTool(msgspec.Struct, frozen=True):
    """A tool call of the gateway's that has begun. Times as in RecordedCall."""

    id: str
    name: str
    server: str | None
    status: ToolCallStatus
    began: int
    ended: int | None


class RecordedTurn(msgspec.Struct, frozen=True):
    """`trace` is the caller's `traceparent` and, behind a blank, `tracestate`; None where there was none. `process` has the
    turn, or had it before it waited. `status` and `failure` are those of the turn, `ended_at` is None before its end. `calls`
    and `tools` are in the order in which they began."""

    trace: str | None
    accepted_at: int
    ended_at: int | None
    process: str
    status: TurnStatus
    failure: str | None
    calls: tuple[RecordedCall, ...]
    tools: tuple[RecordedTool, ...]
