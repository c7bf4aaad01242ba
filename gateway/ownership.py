"""Who keeps a thread's conversation, and what becomes of it when that goes wrong: a lost handle, a backend that keeps what
it should not. Law: one owner per epoch; another owner, or another chain, is another epoch."""

from collections.abc import Sequence

from msgspec.structs import replace

from gateway.agents import AgentPolicies
from gateway.commits.calls import Complete
from gateway.commits.points import CommitPoint
from gateway.commits.threads import BeginEpoch, Lose, Orphan, Rewind, Synced, ThreadRecord, Unsync
from gateway.items import HandleKind, HistoryRecord, Ownership, StorageOwner, UserItem
from gateway.ports import ErrorClass

LOST = frozenset({ErrorClass.HANDLE_NOT_FOUND, ErrorClass.HANDLE_EXPIRED})


def of_thread(thread: ThreadRecord, declared: Ownership) -> Ownership:
    """What holds for this epoch: what the adapter declares, unless the thread began under another owner."""
    if (thread.owner, thread.handle_kind) == (declared.owner, declared.handle):
        return declared
    return Ownership(thread.owner, thread.handle_kind, repeatable=declared.repeatable, call_ids=declared.call_ids)


def serves(declared: Ownership, thread: ThreadRecord) -> bool:
    """May a thread that began under these settings or others go on with this adapter?"""
    if (thread.owner, thread.handle_kind) == (declared.owner, declared.handle):
        return True
    return declared.either and HandleKind.STATIC not in (declared.handle, thread.handle_kind)


def begins_anew(thread: ThreadRecord) -> bool:
    """The chain has still to be begun, and there was another one before: it needs all that was said."""
    return thread.owner is StorageOwner.BACKEND and thread.handle is None and thread.epoch > 1


def contradiction(wanted: str | None, declared: Ownership, policies: AgentPolicies) -> str | None:
    """Why these settings of an agent cannot go together, naming both; None when they can.

    `wanted`: `history.owner`. Source: state-model, scenarios 19, 20, 30.
    """
    if wanted is not None and wanted != declared.owner:
        return (
            f"history.owner: {wanted} is asked for, but with this type and its other settings the conversation is kept "
            f"by the {declared.owner}; remove one of them"
        )
    if policies.persistence == "per_turn" and declared.handle is HandleKind.STATIC:
        return (
            "history.persistence: per_turn cannot be had with a conversation that the backend keeps under one id "
            "(handle kind static): nothing can be taken back from it; use per_service_call, or another history.owner"
        )
    if policies.on_owner_conflict == "adopt" and not declared.either:
        return (
            "on_owner_conflict: adopt needs a type that can go on from a handle although history.owner says gateway; "
            "this one cannot: use fail or warn"
        )
    return None


# --- epochs -----------------------------------------------------------------------------------------------------------


def successor(kind: ErrorClass, thread: ThreadRecord, declared: Ownership, policies: AgentPolicies) -> Ownership | None:
    """Whose the epoch is with which the thread goes on after this error; None: it does not.

    Source: state-model, scenarios 28, 40, 41.
    """
    if policies.on_lost_handle != "rebuild" or thread.owner is not StorageOwner.BACKEND or thread.handle is None:
        return None
    if kind in LOST:
        return Ownership(thread.owner, thread.handle_kind)
    if kind is ErrorClass.STORAGE_DISABLED and declared.either:
        return Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
    return None


def is_complete(records: Sequence[HistoryRecord]) -> bool:
    """Does the shadow hold an answer to everything that the lost chain was told?"""
    told = {r.sent_in for r in records if isinstance(r.item, UserItem) and r.sent_in is not None}
    answered = {r.sent_in for r in records if not isinstance(r.item, UserItem)}
    return told <= answered


def epoch(thread: ThreadRecord, closed: str, of: Ownership, handle: str | None = None) -> BeginEpoch:
    return BeginEpoch(thread.id, thread.generation, closed, of.owner, of.handle, handle)


def goes_back(thread: ThreadRecord, status: str, policies: AgentPolicies) -> bool:
    """With `per_turn` a turn that failed has not been, for the backend too. Source: state-model, section 8."""
    failed = status == "failed" and policies.persistence == "per_turn"
    return failed and thread.handle_kind is HandleKind.ROTATING


# --- what commit points do to a thread --------------------------------------------------------------------------------


def behind(thread: ThreadRecord, point: CommitPoint) -> ThreadRecord:
    """The thread's row as the point leaves it."""
    match point:
        case Complete(handle_out=handle, state=state):
            moved = replace(thread, handle=handle, generation=thread.generation + 1)
            if state is None:
                return moved
            return replace(moved, adapter_state=state, state_version=point.state_version)
        case Rewind(handle=handle) if handle != thread.handle:
            return replace(thread, handle=handle, generation=thread.generation + 1)
        case BeginEpoch(owner=owner, handle_kind=kind, handle=handle):
            following = replace(thread, owner=owner, handle_kind=kind, handle=handle, adapter_state=None, lost=False)
            following = replace(following, state_version=1, unsynced=False)
            return replace(following, epoch=thread.epoch + 1, generation=thread.generation + 1)
        case Lose():
            return replace(thread, lost=True, unsynced=False)
        case Unsync() | Synced():
            return replace(thread, unsynced=isinstance(point, Unsync))
        case _:
            return thread


def behind_all(thread: ThreadRecord, points: Sequence[CommitPoint]) -> ThreadRecord:
    for point in points:
        thread = behind(thread, point)
    return thread


def orphan(thread: ThreadRecord, pending: str | None) -> str | None:
    """What of a call that failed is nobody's: its response, but never a conversation that others may go on with."""
    return pending if thread.handle_kind is HandleKind.ROTATING and pending != thread.handle else None


def led_to(thread: ThreadRecord, points: Sequence[CommitPoint]) -> list[str]:
    """The handles that a unit would have gone on to, or away from: nobody's, when it is not stored."""
    handles = {p.handle for p in points if isinstance(p, BeginEpoch | Orphan)}
    handles |= {orphan(thread, p.handle_out) for p in points if isinstance(p, Complete)}
    return sorted(handle for handle in handles if handle is not None)
