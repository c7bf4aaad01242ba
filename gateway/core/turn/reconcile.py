"""What a service call leads to whose end nobody heard. Law: pure; what a backend shows to be done counts, everything else is
given up explicitly, and nothing that it holds is said to it twice.

Source: state-model, section 8 (step 2) and scenario 51.
"""

from dataclasses import dataclass

import structlog
from msgspec.structs import replace

from gateway.core import commit_points, ownership
from gateway.core.agents import Agent, AgentPolicies
from gateway.core.history import View
from gateway.core.tools import tool_call
from gateway.core.tools.tool_call import ToolPolicy
from gateway.core.turn.commands import CompleteCall
from gateway.core.turn.machine import Turn, TurnFacts
from gateway.foundation.clock import Clock
from gateway.ledger.calls import UnknownCall
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import OPEN, ServiceCallStatus
from gateway.ledger.threads import DeleteOrphan, KeepHandle, MarkSynced, ThreadRecord
from gateway.ports.adapter import MEANINGS, NOT_PROCESSED, Adapter, AdapterError, AdapterEvent, Processed
from gateway.ports.capabilities import Fate, Fetched, Fetching, Tail, TailListing
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

log = structlog.get_logger("gateway.core.turn.reconcile")


def must_reconcile(
    adapter: Adapter, policies: AgentPolicies, thread: ThreadRecord, error_class: str, pending: str | None
) -> bool:
    """Has a call that failed so to be looked up before the next request? Only where the adapter can.

    In a static conversation also what was cancelled may have landed. A chain simply goes on from before the call, so that
    there it is worth asking only where the backend may have an answer that its caller still wants.
    """
    if thread.owner is not StorageOwner.BACKEND or thread.lost:
        return False
    if thread.handle_kind is HandleKind.STATIC:
        known = thread.handle is not None or pending is not None
        return known and isinstance(adapter, TailListing) and error_class not in NOT_PROCESSED
    if pending is None or policies.persistence == "per_turn":
        return False
    meaning = MEANINGS.get(error_class)
    return isinstance(adapter, Fetching) and meaning is not None and meaning.processed is Processed.MAYBE


@dataclass(frozen=True, slots=True)
class UnknownOutcome:
    """A service call whose end nobody heard, on its thread. `view` is what it carried."""

    agent: Agent
    thread: ThreadRecord
    call: UnknownCall
    owned: Ownership
    view: View


def from_fetch(unheard: UnknownOutcome, found: Fetched, clock: Clock) -> tuple[CommitPoint, ...]:
    """Of a rotating handle: the response is the turn's, or it is nobody's and left for deletion."""
    if found.fate is not Fate.COMPLETED:
        return call_failed(unheard, found.fate, clock)
    if unheard.agent.policies.persistence == "per_turn" or unheard.call.handle_in != unheard.thread.handle:
        # A turn that failed has not been, or the conversation went on without it.
        return call_failed(unheard, "left-out", clock)
    closed = _closed(unheard, found.events, clock)
    if closed is None or closed.handle is None:
        return call_failed(unheard, "unusable", clock)
    return _completed(unheard, closed, unheard.view.positions, clock)


def unresolved(unheard: UnknownOutcome, clock: Clock) -> tuple[CommitPoint, ...]:
    """The backend cannot tell: what the call may have made there is nobody's."""
    thread = unheard.thread
    left = ownership.orphaned_handle(thread, unheard.call.pending)
    orphans = () if left is None else (DeleteOrphan(thread.id, unheard.agent.name, left, clock.now()),)
    return (MarkSynced(thread.id, thread.generation), *orphans)


def call_failed(unheard: UnknownOutcome, why: str, clock: Clock) -> tuple[CommitPoint, ...]:
    """The call counts as one that failed."""
    thread, call = unheard.thread, unheard.call
    before = ServiceCallStatus.UNKNOWN
    fail = commit_points.fail(thread, call.turn, call.id, why, clock.now(), before=before)
    return (*unresolved(unheard, clock), fail)


def from_tail(unheard: UnknownOutcome, tail: Tail | None, clock: Clock) -> tuple[CommitPoint, ...]:
    """Of a static handle: the conversation holds the first so many items of the call, and what follows them.

    Where it holds nothing the call stays unknown: a response that still runs may yet land there.
    """
    thread, call = unheard.thread, unheard.call
    held = tail.held if tail is not None else 0
    handle = thread.handle or call.pending
    if not held and thread.handle is not None:
        return (MarkSynced(thread.id, thread.generation),)
    closed = _closed(unheard, tail.answer, clock) if tail is not None and tail.answer else None
    if closed is None:
        # That the conversation was made, or took what was said, is all that is known to be done.
        closed = CompleteCall(handle, None, None, (), ())
    return _completed(unheard, replace(closed, handle=handle), unheard.view.positions[:held], clock)


def _completed(
    unheard: UnknownOutcome, closed: CompleteCall, sent: tuple[int, ...], clock: Clock
) -> tuple[CommitPoint, ...]:
    thread, call = unheard.thread, unheard.call
    version = unheard.agent.adapter.ownership.state_version
    complete = commit_points.complete(thread, call.turn, call.id, closed, sent, version, clock.now())
    kept = () if closed.handle is None else (KeepHandle(thread.id, closed.handle),)
    return (MarkSynced(thread.id, thread.generation), complete, *kept)


def _closed(unheard: UnknownOutcome, events: tuple[AdapterEvent, ...], clock: Clock) -> CompleteCall | None:
    """The call's end, as its turn would have taken it; None for one that it could not have taken.

    The turn has ended: tool calls that nobody answered were not run, and their model is told so.
    """
    facts = TurnFacts(
        task_id="",
        context_id="",
        ownership=unheard.owned,
        shadow=unheard.agent.policies.shadow_history,
        tools=ToolPolicy(exhausted=True, why_not=tool_call.NOT_RUN),
    )
    machine = Turn(facts, clock, round=unheard.call.round)
    thread = unheard.thread
    try:
        for event in events:
            taken = ownership.on_static_handle(thread, event) if ownership.is_static(thread) else event
            for command in machine.receive(taken):
                if isinstance(command, CompleteCall):
                    # A question of the backend's can only be answered in a turn that goes on.
                    asks = any(call.status in OPEN for call in command.tool_calls)
                    return None if asks else command
    except AdapterError as error:
        log.warning("call.not-adopted", agent=unheard.agent.name, thread=thread.id, detail=error.detail)
    return None
