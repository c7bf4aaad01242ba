"""Whether a service call that failed is made again, and after which wait. Law: only where owner, phase and error class say
that it is safe; the same request on the same handle, never after output, never past the turn's deadline.

Source: state-model, section 10; reliability, sections 2a and 4.
"""

from enum import StrEnum

from gateway.items import Ownership, StorageOwner
from gateway.ports import ErrorClass

_TRIES = 3
_LOCKED_WAITS = (1.0, 2.0, 4.0)
_FIRST_WAIT = 0.5
_NOT_FOUND_WAIT = 1.0
_LONGEST_RETRY_AFTER = 60.0
"""Seconds. A backend that wants more is not waited for: the caller is told, and may come back."""

_NOT_PROCESSED = frozenset({ErrorClass.UNREACHABLE, ErrorClass.RATE_LIMITED, ErrorClass.LOCKED})
"""The backend did nothing, and may do it later. What it refuses for good is not asked again."""

_OUTCOME_UNKNOWN = frozenset(
    {ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED, ErrorClass.BACKEND_FAILED, ErrorClass.UNKNOWN}
)


class Phase(StrEnum):
    """How far a service call came: nothing came back, the backend has taken it, some of its answer is there."""

    SENT = "sent"
    STARTED = "started"
    EMITTED = "emitted"


def may_repeat(ownership: Ownership, phase: Phase, kind: ErrorClass, *, continues: bool) -> bool:
    """The table. `continues`: the request went on from a handle."""
    if phase is Phase.EMITTED:
        return False
    if phase is Phase.STARTED:
        return ownership.may_repeat and kind in _NOT_PROCESSED | _OUTCOME_UNKNOWN
    if kind is ErrorClass.HANDLE_NOT_FOUND:
        # A backend may need a moment until it finds what it has just stored.
        return ownership.owner is StorageOwner.BACKEND and continues
    return kind in _NOT_PROCESSED or (ownership.may_repeat and kind in _OUTCOME_UNKNOWN)


def wait_before(
    kind: ErrorClass, tries: int, *, retry_after: float | None, remaining: float, jitter: float
) -> float | None:
    """Seconds until the next try after `tries` that failed; None: there is none.

    `remaining` are the seconds that the turn has left. `jitter` is from 0 to 1, so that not all come at once.
    """
    match kind:
        case ErrorClass.LOCKED:
            wait = _LOCKED_WAITS[tries - 1] if tries <= len(_LOCKED_WAITS) else None
        case ErrorClass.HANDLE_NOT_FOUND:
            wait = _NOT_FOUND_WAIT if tries == 1 else None
        case _:
            wait = _FIRST_WAIT * 2 ** (tries - 1) * (1 + jitter) / 2 if tries < _TRIES else None
    if wait is None or (retry_after is not None and retry_after > _LONGEST_RETRY_AFTER):
        return None
    wait += retry_after or 0.0
    return wait if wait < remaining else None
