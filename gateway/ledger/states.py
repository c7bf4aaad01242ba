"""The states of turns, service calls and tool calls, in the words that the ledger stores; `core.lifecycles` says which may
follow which. Law: a word is never changed, and never removed while something writes it."""

from enum import StrEnum


class TurnStatus(StrEnum):
    """WAITING: open tool calls need the caller. The last four are final."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


class ServiceCallStatus(StrEnum):
    """STARTED: the backend named a pending handle. UNKNOWN: its outcome is unknown, and may still become known."""

    PREPARED = "prepared"
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"


UNDER_WAY = frozenset({ServiceCallStatus.PREPARED, ServiceCallStatus.STARTED})


class ToolCallStatus(StrEnum):
    """INTERRUPTED: it ran when its turn ended. EXTERNAL: the backend runs it and has not reported the outcome."""

    ANNOUNCED = "announced"
    PENDING_APPROVAL = "pending_approval"
    APPROVED = "approved"
    RUNNING = "running"
    PENDING_CONSENT = "pending_consent"
    COMPLETED = "completed"
    FAILED = "failed"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    EXTERNAL = "external"


OPEN = frozenset(
    {
        ToolCallStatus.ANNOUNCED,
        ToolCallStatus.PENDING_APPROVAL,
        ToolCallStatus.APPROVED,
        ToolCallStatus.RUNNING,
        ToolCallStatus.PENDING_CONSENT,
    }
)
"""Tool calls without an outcome."""

SETTLED = frozenset(ToolCallStatus) - OPEN
"""Tool calls with their outcome."""
