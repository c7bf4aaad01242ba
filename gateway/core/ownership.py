"""Decides who owns the conversation of a thread (the gateway or the backend), and how its handle and the adapter's
state change. Law: an epoch has one owner and one chain; a static handle never changes; the state that a newer version
of the adapter wrote is not changed."""

from collections.abc import Sequence
from functools import reduce

from msgspec.structs import replace

from gateway.a2a.model import Json
from gateway.core.agents import AgentPolicies
from gateway.ledger import threads
from gateway.ledger.calls import Complete
from gateway.ledger.documents import PortableThread
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import TurnStatus
from gateway.ledger.threads import RevertIfDisplaced, ThreadRecord, Withdraw
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    DirectReply,
    ErrorClass,
)
from gateway.ports.capabilities import CanReadState, Ongoing
from gateway.ports.conversation import AssistantItem, HandleKind, HistoryRecord, Ownership, StorageOwner, UserItem


def is_static(thread: ThreadRecord) -> bool:
    return thread.handle_kind is HandleKind.STATIC


def on_static_handle(thread: ThreadRecord, event: AdapterEvent) -> AdapterEvent:
    """The event in the form that the turn expects when the handle is static: a handle that is known already does not
    become pending again, and is filled in when the backend does not repeat it.

    Raises: AdapterError (CONTRACT_BROKEN) when the event names another handle.
    """
    if thread.handle is None or not isinstance(event, CallStarted | CallCompleted | DirectReply):
        return event
    if event.handle not in (None, thread.handle):
        what = f"the static handle {thread.handle!r} became {event.handle!r}"
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, what)
    return replace(event, handle=None if isinstance(event, CallStarted) else thread.handle)


def addressed(thread: ThreadRecord, call: Ongoing) -> Ongoing | None:
    """The names by which the backend can be asked about a call of this thread that has named itself so; None where it has
    not, because a static handle is the name of the conversation and of no call."""
    if call.run is not None:
        return Ongoing(call.handle or thread.handle, call.run)
    return call if call.handle is not None and not is_static(thread) else None


def of_thread(thread: ThreadRecord, declared: Ownership) -> Ownership:
    """The ownership of the current epoch: the declared ownership, unless the epoch began under another owner."""
    if (thread.owner, thread.handle_kind) == (declared.owner, declared.handle):
        return declared
    return Ownership(thread.owner, thread.handle_kind, repeatable=declared.repeatable, call_ids=declared.call_ids)


def can_serve(declared: Ownership, thread: ThreadRecord | PortableThread) -> bool:
    """Whether an adapter with the declared ownership can continue the thread, which may have begun under other
    settings."""
    if (thread.owner, thread.handle_kind) == (declared.owner, declared.handle):
        return True
    return declared.either and HandleKind.STATIC not in (declared.handle, thread.handle_kind)


def starts_new_chain(thread: ThreadRecord) -> bool:
    """Whether the thread has lost its earlier chain and has no new chain yet, so that the next request carries the
    whole conversation."""
    return thread.owner is StorageOwner.BACKEND and thread.handle is None and thread.epoch > 1


def contradiction(wanted: str | None, declared: Ownership, policies: AgentPolicies) -> str | None:
    """A text that names two settings of an agent that exclude each other, or None when there are none.

    `wanted` is the setting `history.owner`. Source: docs/state-model.md, scenarios 19, 20, 30.
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
    if policies.busy_context == "rollback" and declared.handle is HandleKind.STATIC:
        return (
            "busy_context: rollback cannot be had with a conversation that the backend keeps under one id (handle kind "
            "static): nothing can be taken back from it; use interrupt, or another history.owner"
        )
    if policies.on_owner_conflict == "adopt" and not declared.either:
        return (
            "on_owner_conflict: adopt needs a type that can go on from a handle although history.owner says gateway; "
            "this one cannot: use fail or warn"
        )
    return None


# --- epochs -----------------------------------------------------------------------------------------------------------


LOST_BEFORE = ErrorClass.HANDLE_EXPIRED
"""The error of each message to a thread that an earlier turn has found lost."""


def rebuild_ownership(
    kind: ErrorClass, thread: ThreadRecord, declared: Ownership, policies: AgentPolicies, *, stuck: bool = False
) -> Ownership | None:
    """The ownership of the new epoch in which the thread continues after this error, or None when it cannot continue.
    `stuck` says that the backend takes nothing any more that continues from the handle.

    Source: docs/state-model.md, scenarios 28, 40, 41.
    """
    if policies.on_lost_handle != "rebuild" or thread.owner is not StorageOwner.BACKEND or thread.handle is None:
        return None
    if kind.meaning.handle_lost or stuck:
        return Ownership(thread.owner, thread.handle_kind)
    if kind is ErrorClass.STORAGE_DISABLED and declared.either:
        return Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
    return None


def is_complete(records: Sequence[HistoryRecord]) -> bool:
    """Whether `records`, the gateway's copy of the conversation, hold an answer to every message that the lost chain
    carried."""
    counting = [r for r in records if not r.displaced]
    sent = {r.sent_in for r in counting if isinstance(r.item, UserItem) and r.sent_in is not None}
    # A part of an interrupted answer is carried by a later call, and is not the answer of that one.
    answers = [r for r in counting if not isinstance(r.item, UserItem | AssistantItem) or not _is_from_earlier(r)]
    answered = {r.sent_in for r in answers if not isinstance(r.item, UserItem)}
    return sent <= answered


def _is_from_earlier(record: HistoryRecord) -> bool:
    return record.service_call is not None and record.service_call != record.sent_in


def epoch(
    thread: ThreadRecord, closed: str, of: Ownership, handle: str | None = None, *, why: str, now: int
) -> threads.BeginEpoch:
    return threads.BeginEpoch(thread.id, thread.generation, closed, of.owner, of.handle, handle, why, now)


def rewinds(thread: ThreadRecord, status: TurnStatus, policies: AgentPolicies) -> bool:
    """Whether the end of the turn resets the handle to its value before the turn: with `per_turn`, a failed turn does.

    Source: docs/state-model.md, section 8.
    """
    failed = status is TurnStatus.FAILED and policies.persistence == "per_turn"
    return failed and thread.handle_kind is HandleKind.ROTATING


def revert_displaced(thread: ThreadRecord, turn: str, status: TurnStatus, now: int) -> tuple[RevertIfDisplaced, ...]:
    """The commit point that resets the handle after an unfinished turn if another message has displaced the turn.

    The condition is checked in the turn's row, because the message may have arrived in another process.
    """
    unfinished = status in (TurnStatus.FAILED, TurnStatus.CANCELLED)
    rotates = thread.handle_kind is HandleKind.ROTATING
    return (RevertIfDisplaced(thread.id, turn, now),) if unfinished and rotates else ()


def withdraw(kind: HandleKind, task: str, status: TurnStatus, now: int) -> tuple[Withdraw, ...]:
    """The commit point behind an end of the turn, and with it of the task, that its agent did not bring about: the agent may
    still wait for the caller. Where the handle rotates, nothing does: it names a call that is over."""
    unfinished = status in (TurnStatus.FAILED, TurnStatus.CANCELLED)
    return (Withdraw(task, now),) if unfinished and kind is HandleKind.STATIC else ()


# --- effects of commit points on a thread -----------------------------------------------------------------------------


def apply_point(thread: ThreadRecord, point: CommitPoint) -> ThreadRecord:
    """The thread's row after the commit point."""
    match point:
        case Complete(handle_out=handle, state=state, secret=secret):
            kept = thread.adapter_secret if secret is None else secret
            moved = replace(thread, handle=handle, generation=thread.generation + 1, adapter_secret=kept)
            if state is None:
                return moved
            return replace(moved, adapter_state=state, state_version=point.state_version)
        case threads.ConfirmHandle(handle=handle):
            return replace(thread, handle=handle, generation=thread.generation + 1)
        case threads.Rewind(handle=handle) if handle != thread.handle:
            return replace(thread, handle=handle, generation=thread.generation + 1)
        case threads.BeginEpoch(owner=owner, handle_kind=kind, handle=handle):
            following = replace(thread, owner=owner, handle_kind=kind, handle=handle, adapter_state=None, lost=False)
            following = replace(following, state_version=1, adapter_secret=None, unsynced=False)
            return replace(following, epoch=thread.epoch + 1, generation=thread.generation + 1)
        case threads.MarkHandleLost():
            return replace(thread, lost=True, unsynced=False)
        case threads.MarkUnsynced() | threads.MarkSynced():
            return replace(thread, unsynced=isinstance(point, threads.MarkUnsynced))
        case _:
            return thread


def apply_points(thread: ThreadRecord, points: Sequence[CommitPoint]) -> ThreadRecord:
    return reduce(apply_point, points, thread)


def orphaned_handle(thread: ThreadRecord, pending: str | None) -> str | None:
    """The handle of a failed call, for deletion at the backend; None for a static handle or for the thread's present
    handle, because the conversation may be continued from these."""
    return pending if thread.handle_kind is HandleKind.ROTATING and pending != thread.handle else None


def abandoned_handles(thread: ThreadRecord, points: Sequence[CommitPoint]) -> list[str]:
    """The handles that no thread refers to when the unit with these commit points is not stored."""
    handles = {p.handle for p in points if isinstance(p, threads.BeginEpoch | threads.DeleteOrphan)}
    handles |= {orphaned_handle(thread, p.handle_out) for p in points if isinstance(p, Complete)}
    return sorted(handle for handle in handles if handle is not None)


def state_is_newer(adapter: Adapter, thread: ThreadRecord) -> bool:
    """Whether a newer version of the adapter wrote the state. Source: docs/state-model.md, scenario 128."""
    return thread.adapter_state is not None and thread.state_version > adapter.ownership.state_version


def adapter_state(adapter: Adapter, thread: ThreadRecord) -> Json:
    """The adapter's state of the thread, in the form of this version of the adapter.

    Raises: AdapterError when the adapter cannot read the state.
    """
    state, version = thread.adapter_state, thread.state_version
    if state is None or version == adapter.ownership.state_version:
        return state
    if state_is_newer(adapter, thread):
        raise _unreadable(f"is of version {version}, newer than the adapter's {adapter.ownership.state_version}")
    if not isinstance(adapter, CanReadState):
        return state
    try:
        return adapter.read_state(state, version)
    except ValueError as error:
        raise _unreadable(f"of version {version} cannot be read: {error}") from error


def _unreadable(why: str) -> AdapterError:
    return AdapterError(ErrorClass.CONTRACT_BROKEN, f"the state of the thread {why}")
