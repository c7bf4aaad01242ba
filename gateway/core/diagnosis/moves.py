"""Why the handle of a thread moved or stayed, and what became of the one before. Law: a step is told by the row of its service
call; where the next step begins at another handle, something between the two has moved it.

Source: docs/state-model.md, I3 and section 8.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from gateway.ledger.admin.contexts import HandleStep, HandleSteps, QueuedDeletion, ThreadMap
from gateway.ledger.calls import CANCELLED
from gateway.ledger.states import UNDER_WAY, ServiceCallStatus
from gateway.ports.adapter import MEANINGS
from gateway.ports.conversation import HandleKind, StorageOwner

_ADOPTED = "adopted"


class Why(StrEnum):
    """ANSWERED: a completed call. CAUGHT_UP: what had become of a call was found out after its turn. FAILED, CANCELLED,
    UNKNOWN: the call moves nothing. LOST: nor does this one, and the backend does not know the handle, which is told
    once of a page. UNDER_WAY: the call has
    not ended. TAKEN_BACK: a turn that does not count has moved it, and it returned to where that turn began. TOLD_AGAIN: a new
    epoch, as the backend knew the handle no more. OWNER_CHANGED: a new epoch, with another keeper of the conversation. ADOPTED:
    the thread began at a handle of its backend."""

    ANSWERED = "answered"
    CAUGHT_UP = "caught up"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "outcome unknown"
    LOST = "lost"
    UNDER_WAY = "under way"
    TAKEN_BACK = "taken back"
    TOLD_AGAIN = "told again"
    OWNER_CHANGED = "owner changed"
    ADOPTED = "adopted"


class Old(StrEnum):
    """What became of the handle that is not the thread's any more. STAYS: it still is. BEHIND: the conversation goes on
    behind it, and it is deleted with its context. GONE: its backend does not know it. TO_DELETE: its deletion is queued.
    GIVEN_UP: its deletion has failed too often. DELETED: it was queued to be deleted, and is no more."""

    NONE = "none"
    STAYS = "stays"
    BEHIND = "behind"
    GONE = "gone"
    TO_DELETE = "to be deleted"
    DELETED = "deleted"
    GIVEN_UP = "deletion given up"


class Move(msgspec.Struct, frozen=True):
    """What happened to the handle of a thread at this time. `detail` is the error class or the word for an epoch's beginning.
    `orphan` is a handle that a call has left at the backend, and that the thread never had. `old` is what became of it, or
    else of `before`, after `tries` deletions that failed. `epoch` is the number of a new epoch."""

    at: int
    why: Why
    number: int | None
    turn: str | None
    task: str | None
    call: str | None
    before: str | None
    after: str | None
    old: Old
    tries: int = 0
    detail: str | None = None
    orphan: str | None = None
    epoch: int | None = None


def moves(found: HandleSteps) -> tuple[Move, ...]:
    """The moves of a page of steps, the latest first. What happened between two pages is on the later read one."""
    steps, thread = [*reversed(found.steps)], found.thread
    epochs = sorted(found.epochs, key=lambda epoch: epoch.epoch)
    told = [*_first(epochs, steps[0] if steps else found.ahead, thread)] if found.before is None else []
    current = steps[0].before if steps else None
    lost: str | None = None
    for step, following in pairwise([*steps, found.ahead]):
        if step is None:  # only the last one may be missing
            break
        move = _of_call(step, following, _epoch_of(step, epochs, thread).handle_kind)
        if move.why is Why.LOST:
            # Later messages fail for the loss, and lose nothing.
            move, lost = (replace(move, why=Why.FAILED) if move.before == lost else move), move.before
        current = move.after if move.why in _MOVING else current
        between = [*_between(step, following, epochs, current, thread)]
        current = between[-1].after if between else current
        told += [move, *between]
    return tuple(reversed(told))


_MOVING = frozenset({Why.ANSWERED, Why.CAUGHT_UP})


def _epoch_of(step: HandleStep, epochs: list[ThreadMap], thread: ThreadMap) -> ThreadMap:
    begun = [epoch for epoch in epochs if epoch.began_at is None or epoch.began_at <= step.prepared_at]
    return begun[-1] if begun else thread


def _of_call(step: HandleStep, following: HandleStep | None, kind: HandleKind) -> Move:
    after, why, (old, tries), orphan = step.before, _failure(step), (Old.STAYS, 0), None
    if step.status is ServiceCallStatus.COMPLETED:
        after, why = step.after, Why.CAUGHT_UP if _is_late(step) else Why.ANSWERED
        old, tries = _left_behind(step.before, step.after, step.deletion_before)
    elif _confirms(step, following):
        after, why, old = step.pending, Why.CAUGHT_UP, Old.NONE
    elif kind is HandleKind.ROTATING and why is not Why.UNDER_WAY and step.pending not in (None, step.before):
        orphan = step.pending
        old, tries = _unclaimed(step)
    elif why is Why.LOST:
        old = Old.GONE
    at = step.ended_at or step.prepared_at
    place = (step.number, step.turn, step.task, step.call)
    detail = None if why is Why.CANCELLED else step.error_class
    return Move(at, why, *place, step.before, after, old, tries, detail, orphan)


def _failure(step: HandleStep) -> Why:
    if step.status in UNDER_WAY:
        return Why.UNDER_WAY
    meaning = MEANINGS.get(step.error_class or "")
    if meaning is not None and meaning.handle_lost:
        return Why.LOST
    if step.status is ServiceCallStatus.UNKNOWN:
        return Why.UNKNOWN
    return Why.CANCELLED if step.error_class == CANCELLED else Why.FAILED


def _unclaimed(step: HandleStep) -> tuple[Old, int]:
    """What became of a handle that a failed call has left at its backend: as long as the outcome is unknown, the next turn may
    still go on from it."""
    if step.status is ServiceCallStatus.UNKNOWN and step.deletion_after is None:
        return Old.STAYS, 0
    return _deleted(step.deletion_after)


def _is_late(step: HandleStep) -> bool:
    return step.turn_ended_at is not None and step.ended_at is not None and step.ended_at > step.turn_ended_at


def _confirms(step: HandleStep, following: HandleStep | None) -> bool:
    """The conversation that a call of unknown outcome has made is the one that the next call goes on in."""
    return (
        step.status is ServiceCallStatus.UNKNOWN
        and step.before is None
        and step.pending is not None
        and following is not None
        and following.before == step.pending
    )


def _left_behind(before: str | None, after: str | None, deletion: QueuedDeletion | None) -> tuple[Old, int]:
    if before is None:
        return Old.NONE, 0
    if before == after:
        return Old.STAYS, 0
    return (Old.BEHIND, 0) if deletion is None else _deleted(deletion)


def _deleted(deletion: QueuedDeletion | None) -> tuple[Old, int]:
    if deletion is None:
        return Old.DELETED, 0
    return Old.GIVEN_UP if deletion.due_at is None else Old.TO_DELETE, deletion.attempts


def _between(
    step: HandleStep, following: HandleStep | None, epochs: list[ThreadMap], current: str | None, thread: ThreadMap
) -> Iterator[Move]:
    """What moved the handle between a call and the next one, or since the last call."""
    now = thread.handle if following is None else following.before
    begun = [pair for pair in pairwise(epochs) if _begins_between(pair, step, following, current != now and current)]
    for number, (earlier, later) in enumerate(begun, 1):
        # An epoch in which no call was made still has its first handle.
        after = now if number == len(begun) else later.handle
        yield _new_epoch(earlier, later, current, after, following or step)
        current = after
    if begun or now == current or thread.handle_kind is HandleKind.NONE:
        return
    if following is not None and _is_trial(following):
        return
    old, tries = _deleted(step.deletion_after) if thread.handle_kind is HandleKind.ROTATING else (Old.BEHIND, 0)
    at = step.turn_ended_at or step.ended_at or step.prepared_at
    place = (step.number, step.turn, step.task, None)
    yield Move(at, Why.TAKEN_BACK, *place, current, now, old, tries, step.failure_class)


def _begins_between(
    pair: tuple[ThreadMap, ThreadMap], step: HandleStep, following: HandleStep | None, left: str | bool | None
) -> bool:
    """Whether the second epoch began between the calls. Where its time was not noted, the first one has kept the handle that
    the thread has `left`."""
    earlier, later = pair
    if later.began_at is None:
        return bool(left) and earlier.handle == left
    return step.prepared_at < later.began_at and (following is None or later.began_at <= following.prepared_at)


def _is_trial(step: HandleStep) -> bool:
    """A later try of a turn may begin at an earlier handle; only if the backend takes it does the thread go back there."""
    return (step.round, step.attempt) != (0, 0) and step.status is not ServiceCallStatus.COMPLETED


def _new_epoch(earlier: ThreadMap, later: ThreadMap, before: str | None, after: str | None, step: HandleStep) -> Move:
    meaning = MEANINGS.get(later.began_by or "")
    changed = (earlier.owner, earlier.handle_kind) != (later.owner, later.handle_kind)
    why = Why.OWNER_CHANGED if changed else Why.TOLD_AGAIN
    old = Old.NONE if before is None else Old.BEHIND
    if before is not None and meaning is not None and meaning.handle_lost:
        old = Old.GONE
    at = later.began_at or step.prepared_at
    return Move(
        at, why, step.number, step.turn, step.task, None, before, after, old, detail=later.began_by, epoch=later.epoch
    )


def _first(epochs: list[ThreadMap], step: HandleStep | None, thread: ThreadMap) -> Iterator[Move]:
    """The beginning of a thread at a handle that was there before it."""
    if not epochs or epochs[0].owner is not StorageOwner.BACKEND or epochs[0].began_by != _ADOPTED:
        return
    begun = epochs[0].began_at or 0
    begins = Move(begun, Why.ADOPTED, None, None, None, None, None, thread.handle, Old.NONE, detail=_ADOPTED)
    if step is not None:
        begins = replace(begins, number=step.number, turn=step.turn, task=step.task, after=step.before)
    yield replace(begins, epoch=epochs[0].epoch)
