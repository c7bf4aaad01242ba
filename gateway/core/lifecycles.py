"""The lifecycles of tasks, turns, service calls and tool calls. Law: one table each says which state may follow which; any
other step raises, and a final state is final.

Source: docs/state-model.md, entities; for tasks A2A 1.0, sections 4.1.3 and 3.1.1.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TypeVar

from gateway.a2a.model import TERMINAL, TaskState
from gateway.ledger.states import SETTLED, ServiceCallStatus, ToolCallStatus, TurnStatus

S = TypeVar("S", TaskState, TurnStatus, ServiceCallStatus, ToolCallStatus)

_TURN_ENDS = frozenset({TurnStatus.COMPLETED, TurnStatus.FAILED, TurnStatus.CANCELLED, TurnStatus.REJECTED})
_HEARD = frozenset({ServiceCallStatus.COMPLETED, ServiceCallStatus.FAILED})
_REFUSED = frozenset({ToolCallStatus.REJECTED, ToolCallStatus.CANCELLED})

TASK: Mapping[TaskState | None, AbstractSet[TaskState]] = dict.fromkeys(
    set(TaskState) - TERMINAL, frozenset(TaskState) - {TaskState.SUBMITTED}
)

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
    # This applies while the service call runs; the backend may answer the tool call before the service call ends.
    None: SETTLED | {ToolCallStatus.ANNOUNCED, ToolCallStatus.PENDING_APPROVAL},
    # The outcome of the same call in an earlier round may be taken over, whatever it was.
    ToolCallStatus.ANNOUNCED: SETTLED | {ToolCallStatus.RUNNING},
    ToolCallStatus.PENDING_APPROVAL: _REFUSED | {ToolCallStatus.APPROVED},
    ToolCallStatus.APPROVED: SETTLED | {ToolCallStatus.RUNNING},
    # RUNNING follows RUNNING when the process of an idempotent tool died.
    ToolCallStatus.RUNNING: SETTLED | {ToolCallStatus.RUNNING, ToolCallStatus.PENDING_CONSENT},
    ToolCallStatus.PENDING_CONSENT: _REFUSED | {ToolCallStatus.APPROVED},
    # The backend may report the outcome with a later service call of the turn.
    ToolCallStatus.EXTERNAL: {ToolCallStatus.COMPLETED, ToolCallStatus.FAILED},
}


class IllegalTransition(Exception):
    """The present state does not allow the following one."""


def advance(table: Mapping[S | None, AbstractSet[S]], status: S | None, following: S) -> S:
    """The status after the step. Raises: IllegalTransition."""
    if following not in table.get(status, ()):
        raise IllegalTransition(f"a {type(following).__name__} of {status} cannot become {following}")
    return following
