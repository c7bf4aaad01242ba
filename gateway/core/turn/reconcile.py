"""The result of a service call of unknown outcome. Law: pure; what the backend shows to be done counts, everything else is
failed explicitly, and the backend is never sent what it holds.

Source: docs/state-model.md, section 8 (step 2) and scenario 51.
"""

from collections.abc import Callable

import msgspec
import structlog
from msgspec.structs import replace

from gateway.a2a.model import Json
from gateway.core import commit_points, ownership
from gateway.core.agents import Agent, AgentPolicies
from gateway.core.history import View
from gateway.core.tools import tool_call
from gateway.core.tools.tool_call import ToolPolicy
from gateway.core.turn.commands import CompleteCall
from gateway.core.turn.machine import TurnFacts, TurnMachine
from gateway.foundation.clock import Clock
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.calls import DropPartial, UnknownCall
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import OPEN, ServiceCallStatus
from gateway.ledger.threads import ConfirmHandle, DeleteOrphan, KeepHandle, MarkSynced, ThreadRecord
from gateway.ports.adapter import (
    MEANINGS,
    NOT_PROCESSED,
    Adapter,
    AdapterError,
    AdapterEvent,
    AnswerReplaced,
    MessageReady,
    Processed,
    TextDelta,
)
from gateway.ports.capabilities import CanFetch, CanFind, CanListTail, Fate, Fetched, Ongoing, Tail
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

log = structlog.get_logger("gateway.core.turn.reconcile")


def must_reconcile(
    adapter: Adapter, policies: AgentPolicies, thread: ThreadRecord, error_class: str, call: Ongoing
) -> bool:
    """Whether a call that failed in this way has to be looked up before the next request; only where the adapter can.

    In a static conversation a cancelled call may have landed too. A chain continues from before the call, so that a look-up
    pays only where the backend may have an answer that the caller still wants.
    """
    if thread.owner is not StorageOwner.BACKEND or thread.lost:
        return False
    if thread.handle_kind is HandleKind.STATIC:
        known = thread.handle is not None or call.handle is not None or isinstance(adapter, CanFind)
        asks = isinstance(adapter, CanListTail) or (call.run is not None and isinstance(adapter, CanFetch))
        return known and asks and error_class not in NOT_PROCESSED
    if call.handle is None or policies.persistence == "per_turn":
        return False
    meaning = MEANINGS.get(error_class)
    return isinstance(adapter, CanFetch) and meaning is not None and meaning.processed is Processed.MAYBE


class UnknownOutcome(msgspec.Struct, frozen=True):
    """A service call of a thread whose end the gateway did not receive. `view` holds the items that the call
    carried. `seal` makes the record of a secret that its end brings."""

    agent: Agent
    thread: ThreadRecord
    call: UnknownCall
    owned: Ownership
    view: View
    seal: Callable[[Json], str | None]


def names(unknown: UnknownOutcome) -> Ongoing | None:
    """The names by which the call can be looked up, if the backend gave any."""
    return ownership.addressed(unknown.thread, Ongoing(unknown.call.pending, unknown.call.run))


def named(unknown: UnknownOutcome, found: Ongoing) -> UnknownOutcome:
    """The call with the names by which the backend was found to have it."""
    return replace(unknown, call=replace(unknown.call, pending=found.handle, run=found.run))


def from_run(unknown: UnknownOutcome, events: tuple[AdapterEvent, ...], clock: Clock) -> tuple[CommitPoint, ...]:
    """The commit points after a run in a static conversation is found completed: the conversation holds what the call
    carried, and these events are the answer."""
    return from_tail(unknown, Tail(len(unknown.view.items), events), clock)


def from_fetch(unknown: UnknownOutcome, found: Fetched, clock: Clock) -> tuple[CommitPoint, ...]:
    """The commit points after a look-up of a rotating handle: the response becomes the turn's response, or is deleted
    as an orphan."""
    if found.fate is not Fate.COMPLETED:
        return call_failed(unknown, found.fate, clock)
    if unknown.agent.policies.persistence == "per_turn" or unknown.call.handle_in != unknown.thread.handle:
        # The failed turn is no part of the conversation, or the conversation continued without it.
        return call_failed(unknown, "left-out", clock)
    end = _end_of_call(unknown, found.events, clock)
    if end is None or end.handle is None:
        return call_failed(unknown, "unusable", clock)
    return _completed(unknown, end, unknown.view.positions, clock)


def unresolved(unknown: UnknownOutcome, clock: Clock) -> tuple[CommitPoint, ...]:
    """The backend cannot tell: a response that the call may have made there is an orphan."""
    thread = unknown.thread
    handle = ownership.orphaned_handle(thread, unknown.call.pending)
    orphans = () if handle is None else (DeleteOrphan(thread.id, unknown.agent.name, handle, clock.now()),)
    return (MarkSynced(thread.id, thread.generation), *orphans)


def call_failed(unknown: UnknownOutcome, reason: str, clock: Clock) -> tuple[CommitPoint, ...]:
    thread, call = unknown.thread, unknown.call
    fail = commit_points.fail(thread, call.turn, call.id, reason, clock.now(), before=ServiceCallStatus.UNKNOWN)
    return (*unresolved(unknown, clock), fail)


def from_tail(unknown: UnknownOutcome, tail: Tail | None, clock: Clock) -> tuple[CommitPoint, ...]:
    """For a static handle: the conversation holds the first `held` items of the call, and the answer after them.

    Where it holds none of them the call stays unknown: a response that still runs may yet land there, also in a
    conversation that the call itself has made.
    """
    thread, call = unknown.thread, unknown.call
    held = tail.held if tail is not None else 0
    handle = thread.handle or call.pending
    if not held:
        synced, made = MarkSynced(thread.id, thread.generation), call.pending
        if thread.handle is not None or made is None:
            return (synced,)
        return (synced, ConfirmHandle(thread.id, thread.generation, made))
    end = _end_of_call(unknown, tail.answer, clock) if tail is not None and tail.answer else None
    if end is None:
        # All that is known to be done: the conversation took the items.
        end = CompleteCall(handle, None, None, (), ())
    completed = _completed(unknown, replace(end, handle=handle), unknown.view.positions[:held], clock)
    # The conversation has in full what the caller of a cancelled turn has seen in part.
    answered = tail is not None and any(
        isinstance(event, TextDelta | MessageReady | AnswerReplaced) for event in tail.answer
    )
    return (DropPartial(thread.id, call.id), *completed) if answered else completed


def _completed(
    unknown: UnknownOutcome, end: CompleteCall, sent: tuple[int, ...], clock: Clock
) -> tuple[CommitPoint, ...]:
    thread, call = unknown.thread, unknown.call
    version = unknown.agent.adapter.ownership.state_version
    secret = unknown.seal(end.secret)
    complete = commit_points.complete(
        thread, call.turn, call.id, end, sent, version, clock.now(), secret=secret, first_at=None
    )
    kept = () if end.handle is None else (KeepHandle(thread.id, end.handle),)
    return (MarkSynced(thread.id, thread.generation), complete, *kept)


def _end_of_call(unknown: UnknownOutcome, events: tuple[AdapterEvent, ...], clock: Clock) -> CompleteCall | None:
    """The end of the call in the form that its turn would have recorded, or None when the turn could not have accepted
    these events.

    The turn has ended, so unanswered tool calls get an outcome that says that they were not run.
    """
    facts = TurnFacts(
        task_id="",
        context_id="",
        turn=unknown.call.turn,
        ownership=unknown.owned,
        shadow=unknown.agent.policies.shadow_history,
        tools=ToolPolicy(exhausted=True, why_not=tool_call.NOT_RUN),
    )
    machine = TurnMachine(facts, clock, round=unknown.call.round)
    thread = unknown.thread
    try:
        for event in events:
            taken = ownership.on_static_handle(thread, event) if ownership.is_static(thread) else event
            for command in machine.receive(taken):
                if isinstance(command, CompleteCall):
                    # A question of the backend can only be answered in a turn that continues.
                    asks = any(call.status in OPEN for call in command.tool_calls)
                    return None if asks else command
    except AdapterError as error:
        log.warning("call.not-adopted", agent=unknown.agent.name, thread=thread.id, detail=error.detail)
        drop_tracebacks(error)
    return None
