"""The same unit in fewer statements. Law: what is left behind is what the whole list would have left.

Commit points that go together change a row twice, one right behind the other; then the second change is made with the
first. A statement costs what it takes to find its row, and a turn has two such units.

Each commit point as the statements that carry it out, in order. Law: no I/O, nothing but what the point says.

The points of one commit are one unit: the writer stores all of their steps or none.
"""

from collections.abc import Iterable

import msgspec

from gateway.a2a.model import Json, TaskState
from gateway.ledger.api_keys import IssueKey, RevokeKey
from gateway.ledger.calls import Complete, Fail, NewItem, NewToolCall, Prepare, SetPendingHandle
from gateway.ledger.documents import Adopt, Import
from gateway.ledger.leases import Claim, CountTries, Fence, Heartbeat, Release, Renew, RequestCancel, TakeOver
from gateway.ledger.points import CommitPoint
from gateway.ledger.push import (
    AdvancePush,
    ClaimPush,
    CompletePush,
    DeletePushConfig,
    FailPush,
    PushPoint,
    PutPushConfig,
    ReplayPush,
)
from gateway.ledger.tasks import Append, Close, EventRow, Finish
from gateway.ledger.threads import (
    BeginEpoch,
    DeleteOrphan,
    Displace,
    KeepHandle,
    MarkHandleLost,
    MarkSynced,
    MarkUnsynced,
    RevertIfDisplaced,
    Rewind,
)
from gateway.ledger.tool_calls import OPEN, ToolEnds, ToolStarts, ToolWaits
from gateway.ledger.turns import Accept, Decide, Preferences, Resume, Suspend
from gateway.ports import conversation
from gateway.ports.weight import weight
from storage import compiled
from storage.statement import Step, Value, Values
from storage.write.documents import bring
from storage.write.other_units import Ending, decided, displaced, elsewhere, ending, keyed, leased, pushing

Once = dict[int, Values | None]
"""The parameters of each statement; None where there are several such statements, and no pairs to be told."""

# By identity: a statement is a long text to compare.
_NEW_THREAD, _TAKE_LEASE = id(compiled.NEW_THREAD), id(compiled.TAKE_LEASE)
_NEW_TURN, _RUN_TURN = id(compiled.NEW_TURN), id(compiled.RUN_TURN)
_CALL_STARTED, _CALL_COMPLETED, _CALL_FAILED = (
    id(compiled.SET_PENDING_HANDLE),
    id(compiled.COMPLETE_CALL),
    id(compiled.FAIL_CALL),
)
_FORGET_CALLS = id(compiled.ABANDON_CALLS)


def shortened(steps: list[Step]) -> list[Step]:
    """`steps` are those of one unit; parameters of theirs are changed in place."""
    if len(steps) == 1:  # as what a running turn says: nothing to pair
        return steps
    once: dict[int, Values | None] = {}
    for statement, values in steps:
        once[id(statement)] = None if id(statement) in once else values
    needless = {*_begun(once), *_ended(once)}
    return [step for step in steps if id(step[0]) not in needless] if needless else steps


def _begun(steps: Once) -> list[int]:
    """A turn that begins when it is accepted, on a thread that is as new: nobody can hold that, or wait there."""
    thread, lease = steps.get(_NEW_THREAD), steps.get(_TAKE_LEASE)
    turn, run = steps.get(_NEW_TURN), steps.get(_RUN_TURN)
    if thread is None or lease is None or turn is None or run is None:
        return []
    turn["turn_status"], turn["base_generation"] = "running", run["base_generation"]
    thread["lease_holder"], thread["lease_until"] = lease["holder"], lease["lease_until"]
    thread["generation"] = run["base_generation"]
    return [_TAKE_LEASE, _RUN_TURN]


def _ended(steps: Once) -> list[int]:
    """A service call that is over when its pending handle is written, or its turn ends."""
    call = steps.get(_CALL_COMPLETED) or steps.get(_CALL_FAILED)
    if call is None:
        return []
    needless = []
    started = steps.get(_CALL_STARTED)
    if started is not None and started["service_call"] == call["service_call"]:
        call["pending_handle"] = started["pending_handle"]
        needless.append(_CALL_STARTED)
    forget = steps.get(_FORGET_CALLS)
    if forget is not None and forget["turn"] == call["turn"]:
        needless.append(_FORGET_CALLS)
    return needless


_encoder = msgspec.json.Encoder()

_NONE = Preferences()

_ENDS_ALL_TURNS = frozenset({TaskState.CANCELED, TaskState.FAILED, TaskState.REJECTED})


def unit(points: Iterable[CommitPoint]) -> list[Step]:
    """The steps of all points, in their order, or shorter ones that leave the same."""
    return shortened([step for point in points for step in _steps(point)])


def new_secret(name: str, value: bytes) -> list[Step]:
    return [(compiled.NEW_SECRET, {"name": name, "value": value})]


def probe() -> list[Step]:
    """Changes a row that means nothing: does the database take writes?"""
    return [(compiled.PROBE, {})]


def _steps(point: CommitPoint) -> list[Step]:  # a table: one line for each
    match point:
        case Append():  # first, because there are most of them
            return _events(point.events)
        case Accept():
            return _accept(point)
        case Prepare():
            return _prepare(point)
        case SetPendingHandle():
            return [(compiled.SET_PENDING_HANDLE, {"service_call": point.service_call, "pending_handle": point.handle})]
        case Complete() | Fail():
            return _complete(point) if isinstance(point, Complete) else _fail(point)
        case ToolStarts() | ToolWaits() | ToolEnds() | Suspend() | Resume() | Decide():
            return _tools(point)
        case Finish():
            return _finish(point)
        case Close():
            return _close(point)
        case TakeOver() | Claim() | CountTries() | Renew() | Release() | Fence() | Heartbeat() | RequestCancel():
            return leased(point)
        case MarkHandleLost() | MarkUnsynced() | MarkSynced() | BeginEpoch() | Rewind() | DeleteOrphan() | KeepHandle():
            return elsewhere(point)
        case Displace() | RevertIfDisplaced():
            return displaced(point)
        case _:
            return _beside(point)


def _beside(point: Adopt | Import | IssueKey | RevokeKey | PushPoint | Ending) -> list[Step]:
    """What no turn does."""
    match point:
        case Adopt() | Import():
            return bring(point)
        case IssueKey() | RevokeKey():
            return keyed(point)
        case (
            PutPushConfig()
            | DeletePushConfig()
            | ClaimPush()
            | AdvancePush()
            | CompletePush()
            | FailPush()
            | ReplayPush()
        ):
            return pushing(point)
        case _:
            return ending(point)


def _json(value: Json) -> str:
    return _encoder.encode(value).decode()


def _json_or_null(value: Json) -> str | None:
    return None if value is None else _json(value)


def _events(row: EventRow | None) -> list[Step]:
    if row is None:
        return []
    values: dict[str, Value] = {
        "event_task": row.task,
        "event_first": row.first,
        "event_last": row.last,
        "event_payload": row.payload.decode(),
    }
    return [(compiled.NEW_EVENTS, values)]


def _accept(point: Accept) -> list[Step]:
    thread = point.thread
    values: dict[str, Value] = {
        "tenant": point.caller.tenant,
        "principal": point.caller.principal,
        "agent": point.agent,
        "now": point.now,
        "context": point.context_row,
        "public_id": point.context_public,
        "thread": thread.id,
        "epoch": thread.epoch,
        "storage_owner": thread.owner.value,
        "handle_kind": thread.handle_kind.value,
        "handle": thread.handle,
        "generation": thread.generation,
        "adapter_state": _json_or_null(thread.adapter_state),
        "state_version": None if thread.adapter_state is None else _later_version(thread.state_version),
        "task": point.task,
        "state": TaskState.WORKING.value if point.working else TaskState.SUBMITTED.value,
        "visible": int(point.visible),
        "last_event": point.last_event,
        "turn": point.turn,
        "process": point.process,
        "message_id": point.message.message_id,
        "message": _json(point.message),
        "preferences": None if point.preferences == _NONE else _encoder.encode(point.preferences).decode(),
        "weight": weight(conversation.UserItem(point.message)),
        "turn_status": "accepted",
        "base_generation": None,
        "lease_holder": None,
        "lease_until": None,
        "digest": point.digest,
        "key_kind": point.key.kind if point.key else None,
        "key": point.key.key if point.key else None,
    }
    steps: list[Step] = [(compiled.USE_CONTEXT if point.context_public is None else compiled.NEW_CONTEXT, values)]
    if point.new_thread:
        steps.append((compiled.NEW_THREAD, values))
    steps.append((compiled.NEW_TASK if point.new_task else compiled.CONTINUE_TASK, values))
    steps += [(compiled.NEW_TURN, values), (compiled.NEW_INPUT, values), (compiled.NEW_USER_ITEM, values)]
    return steps + _events(point.event)


def _prepare(point: Prepare) -> list[Step]:
    takes_lease = point.round == 0 and point.attempt == 0
    values: dict[str, Value] = {
        "thread": point.thread,
        "generation": point.generation,
        "base_generation": point.generation + takes_lease,
        "holder": point.holder,
        "lease_until": point.lease_until,
        "turn": point.turn,
        "task": point.task,
        "service_call": point.service_call,
        "round": point.round,
        "attempt": point.attempt,
        "handle_in": point.handle_in,
        "now": point.now,
    }
    steps: list[Step] = [
        (compiled.TAKE_LEASE if takes_lease else compiled.KEEP_LEASE, values),
        (compiled.RUN_TURN, values),
        (compiled.NEW_CALL, values),
    ]
    if point.event is not None:
        steps.append((compiled.START_TASK, values))
    return steps + _events(point.event)


def _complete(point: Complete) -> list[Step]:
    values: dict[str, Value] = {
        "thread": point.thread,
        "generation": point.generation,
        "turn": point.turn,
        "service_call": point.service_call,
        "handle_in": point.handle_in,
        "handle_out": point.handle_out,
        "clean": int(not any(call.status in OPEN for call in point.tool_calls)),
        "adapter_state": _json_or_null(point.state),
        "state_version": None if point.state is None else _later_version(point.state_version),
        "usage": _json_or_null(point.usage),
        "pending_handle": None,
        "weight": point.weight,
        "now": point.now,
    }
    steps: list[Step] = [(compiled.MOVE_HANDLE, values), (compiled.COMPLETE_CALL, values)]
    steps += [_tool_call(call, point.service_call) for call in point.tool_calls]
    if point.sent:
        steps.append((compiled.MARK_SENT, {**values, "sent": _json(point.sent)}))
    for item in point.items:
        steps.append(_item(item, point, sent_in=None if item.unsent else point.service_call))
    return steps


def _fail(point: Fail) -> list[Step]:
    values: dict[str, Value] = {
        "thread": point.thread,
        "generation": point.generation,
        "turn": point.turn,
        "service_call": point.service_call,
        "status": point.status,
        "error_class": point.error_class,
        "pending_handle": None,
        "now": point.now,
    }
    return [(compiled.FAIL_CALL, values), *(_item(item, point, sent_in=None) for item in point.items)]


def _tool_call(call: NewToolCall, service_call: str) -> Step:
    values: dict[str, Value] = {
        "id": call.id,
        "service_call": service_call,
        "sequence": call.sequence,
        "external_id": call.external_id,
        "name": call.name,
        "arguments": call.arguments,
        "executor": call.executor,
        "server": call.server,
        "status": call.status,
        "runs_left": call.runs_left,
        # A settled call has an outcome even where that is null.
        "outcome": _json_or_null(call.outcome) if call.status in OPEN else _json(call.outcome),
        "approval_required": int(call.asked),
        "digest": call.digest,
        "approval_expires_at": call.expires_at,
    }
    return compiled.NEW_TOOL_CALL, values


def _tools(point: ToolStarts | ToolWaits | ToolEnds | Suspend | Resume | Decide) -> list[Step]:
    """Between two service calls of a turn."""
    match point:
        case Decide():
            return decided(point)
        case ToolStarts():
            values: dict[str, Value] = {"tool_call": point.tool_call, "now": point.now}
            return [(compiled.START_TOOL, values | {"thread": point.thread, "generation": point.generation})]
        case ToolWaits():
            values = {"tool_call": point.tool_call, "expires_at": point.expires_at}
            return [(compiled.PAUSE_TOOL, values | {"thread": point.thread, "generation": point.generation})]
        case ToolEnds():
            values = {
                "thread": point.thread,
                "generation": point.generation,
                "service_call": point.service_call,
                "tool_call": point.tool_call,
                "status": point.status,
                "outcome": _json(point.outcome),
            }
            return [(compiled.END_TOOL, values), _item(point.item, point, sent_in=None)]
        case Suspend():
            values = {
                "task": point.task,
                "turn": point.turn,
                "state": point.state.value,
                "status_message": _json_or_null(point.message),
                "now": point.now,
            }
            return [(compiled.SUSPEND_TURN, values), (compiled.SET_TASK_WAITING, values), *_events(point.events)]
        case Resume():
            values = {
                "thread": point.thread,
                "generation": point.generation,
                "base_generation": point.generation + 1,
                "holder": point.holder,
                "lease_until": point.lease_until,
                "turn": point.turn,
                "task": point.task,
                "now": point.now,
            }
            steps: list[Step] = [
                (compiled.TAKE_LEASE, values),
                (compiled.RESUME_TURN, values),
                (compiled.START_TASK, values),
            ]
            return steps + _events(point.event)


def _item(new: NewItem, point: Complete | Fail | ToolEnds, *, sent_in: str | None) -> Step:
    values: dict[str, Value] = {
        "thread": point.thread,
        "turn": point.turn,
        "service_call": point.service_call,
        "tool_call": new.tool_call,
        "kind": conversation.kind(new.item),
        "provider_id": new.provider_id,
        "replayable": int(new.replayable),
        "sent_in": sent_in,
        "weight": weight(new.item),
        "payload": conversation.encode(new.item).decode(),
    }
    return compiled.NEW_ITEM, values


def _finish(point: Finish) -> list[Step]:
    values: dict[str, Value] = {
        "task": point.task,
        "turn": point.turn,
        "thread": point.thread,
        "status": point.status,
        "failure_class": point.failure_class,
        "state": point.state.value if point.state else None,
        "status_message": _json_or_null(point.message),
        "last_event": point.last_event,
        "artifacts": point.artifacts.decode(),
        "messages": point.messages.decode(),
        "visible": int(point.visible),
        "process": point.process,
        "now": point.now,
    }
    steps: list[Step] = [(compiled.END_TURN, values), (compiled.ABANDON_CALLS, values)]
    if point.state is None:
        steps.append((compiled.SET_LAST_EVENT, values))
    elif point.state in _ENDS_ALL_TURNS:
        steps += [(compiled.CANCEL_TURNS, values), (compiled.END_TASK, values)]
    else:
        steps.append((compiled.END_IDLE_TASK, values))
    return steps + _events(point.events)


def _close(point: Close) -> list[Step]:
    values: dict[str, Value] = {
        "task": point.task,
        "state": point.state.value,
        "last_event": point.last_event,
        "now": point.now,
    }
    return [(compiled.CLOSE_TASK, values), *_events(point.event)]


def _later_version(version: int) -> int | None:
    """The first one is what a row without a version has."""
    return version if version > 1 else None
