"""The lifecycles of turns, service calls and tool calls. Law: one table each says which state may follow which; any other step
raises, and a final state is final.

Source: docs/state-model.md, entities.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TypeVar

from gateway.a2a.lifecycle import IllegalTransition
from gateway.ledger.states import SETTLED, ServiceCallStatus, ToolCallStatus, TurnStatus

S = TypeVar("S", TurnStatus, ServiceCallStatus, ToolCallStatus)

_TURN_ENDS = frozenset({TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED, TurnStatus.REJECTED})
_HEARD = frozenset({ServiceCallStatus.COMPLETED, ServiceCallStatus.FAILED})
_REFUSED = frozenset({ToolCallStatus.REJECTED, ToolCallStatus.CANCELLED})

TURN: Mapping[TurnStatus | None, AbstractSet[TurnStatus]] = {
    TurnStatus.ACCEPTED: {TurnStatus.RUNNING, TurnStatus.FAILED, TurnStatus.CANCELLED},
    TurnStatus.RUNNING: _TURN_ENDS | {TurnStatus.WAITING},
    TurnStatus.WAITING: {TurnStatus.WAITING, TurnStatus.RUNNING, TurnStatus.FAILED, TurnStatus.CANCELLED},
}

SERVICE_CALL: Mapping[ServiceCallStatus | None, AbstractSet[ServiceCallStatus]] = {
    ServiceCallStatus.PREPARED: _HEARD | {ServiceCallStatus.STARTED, ServiceCallStatus.UNKNOWN},
    ServiceCallStatus.STARTED: _HEARD | {ServiceCallStatus.UNKNOWN},
    ServiceCallStatus.UNKNOWN: _HEARD,
}

TOOL_CALL: Mapping[ToolCallStatus | None, AbstractSet[ToolCallStatus]] = {
    # While its service call goes on; the backend may have answered it before the end.
    None: SETTLED | {ToolCallStatus.ANNOUNCED, ToolCallStatus.PENDING_APPROVAL},
    # The outcome of the same call in an earlier round may be taken over, whatever it was.
    ToolCallStatus.ANNOUNCED: SETTLED | {ToolCallStatus.RUNNING},
    ToolCallStatus.PENDING_APPROVAL: _REFUSED | {ToolCallStatus.APPROVED},
    ToolCallStatus.APPROVED: SETTLED | {ToolCallStatus.RUNNING},
    # RUNNING again: an idempotent tool whose process died.
    ToolCallStatus.RUNNING: SETTLED | {ToolCallStatus.RUNNING, ToolCallStatus.PENDING_CONSENT},
    ToolCallStatus.PENDING_CONSENT: _REFUSED | {ToolCallStatus.APPROVED},
}


def advance(table: Mapping[S | None, AbstractSet[S]], status: S | None, following: S) -> S:
    """The status after the step. Raises: IllegalTransition."""
    if following not in table.get(status, ()):
        raise IllegalTransition(f"a {type(following).__name__} of {status} cannot become {following}")
    return following
