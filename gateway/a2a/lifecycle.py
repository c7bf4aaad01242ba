"""The task state machine. Law: one table says which state may follow which; a terminal state is final.

Source: A2A 1.0, sections 4.1.3 and 3.1.1.
"""

from gateway.a2a.model import TaskState

_RUNNING = frozenset(
    {
        TaskState.WORKING,
        TaskState.COMPLETED,
        TaskState.FAILED,
        TaskState.CANCELED,
        TaskState.REJECTED,
        TaskState.INPUT_REQUIRED,
        TaskState.AUTH_REQUIRED,
    }
)

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.SUBMITTED: _RUNNING,
    TaskState.WORKING: _RUNNING,
    TaskState.INPUT_REQUIRED: _RUNNING,
    TaskState.AUTH_REQUIRED: _RUNNING,
    TaskState.COMPLETED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELED: frozenset(),
    TaskState.REJECTED: frozenset(),
}


class IllegalTransition(Exception):
    """The present state does not allow the following one."""


def apply(state: TaskState, following: TaskState) -> TaskState:
    """The state after the step. Raises: IllegalTransition."""
    if following not in TRANSITIONS[state]:
        raise IllegalTransition(f"a task in {state} cannot become {following}")
    return following
