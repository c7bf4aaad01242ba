"""Commit points as units: the statements that carry them out, in order. Law: no I/O; the points of one commit are one unit,
of which the writer stores all steps or none."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import asdict

from gateway.ledger import calls, documents, duties, leases, push, quotas, retention, tasks, threads, tool_calls, turns
from gateway.ledger.api_keys import EndSessions, IssueKey, RevokeKey
from gateway.ledger.points import CommitPoint
from storage import compiled
from storage.statement import Statement, Step, Values
from storage.write import turns as turn_units
from storage.write.documents import adopt, import_context
from storage.write.values import json, parameters

TURNS_AT_ONCE = 100
ITEMS_AT_ONCE = 1000
"""Rows that one PurgeContext deletes at most: few enough that other units of its group are not delayed noticeably."""

_PURGE = (
    compiled.PURGE_ITEMS,
    compiled.DELETE_CONFIRMED_HANDLES,
    compiled.DELETE_PENDING_HANDLES,
    compiled.PURGE_TOOL_CALLS,
    compiled.PURGE_CALLS,
    compiled.PURGE_INPUTS,
    compiled.MAKE_TASKS_VISIBLE,
    compiled.PURGE_TURNS,
    compiled.PURGE_EVENTS,
    compiled.PURGE_TASKS,
)


def unit(points: Iterable[CommitPoint]) -> list[Step]:
    """The steps of all points, in their order, or fewer steps with the same effect."""
    return merged([step for point in points for step in steps_of(point)])


def steps_of(point: CommitPoint) -> list[Step]:
    convert = _CONVERTED.get(type(point))
    if convert is not None:
        return convert(point)
    values = asdict(point)
    return [(statement, values) for statement in _DIRECT[type(point)]]


# --- points outside of a turn ---


def _take_over(point: leases.TakeOver) -> list[Step]:
    values = parameters(point, base_generation=point.generation + 1)
    return [(compiled.TAKE_LEASE, values), (compiled.TAKE_OVER_TURN, values), (compiled.NOTE_TAKE_OVER, values)]


def _renew(point: leases.Renew) -> list[Step]:
    return [(compiled.RENEW_LEASE, parameters(point, thread=thread)) for thread in point.threads]


def _request_cancel(point: leases.RequestCancel) -> list[Step]:
    return [(compiled.REQUEST_CANCEL, {"turn": turn}) for turn in point.turns]


def _begin_epoch(point: threads.BeginEpoch) -> list[Step]:
    values = parameters(point, storage_owner=point.owner.value, handle_kind=point.handle_kind.value)
    return [(compiled.NEXT_EPOCH, values), (compiled.ARCHIVE_EPOCH, values), (compiled.BEGIN_EPOCH, values)]


def _displace(point: threads.Displace) -> list[Step]:
    return [(compiled.DISPLACE, parameters(point, itself=int(point.itself)))]


def _delete_context(point: retention.DeleteContext) -> list[Step]:
    values = parameters(point, **parameters(point.caller))
    return [(compiled.DELETE_CONTEXT, values), *_close_threads(values, "deleted"), *_purge(point)]


def _expire_context(point: retention.ExpireContext) -> list[Step]:
    values = parameters(point)
    return [(compiled.EXPIRE_CONTEXT, values), *_close_threads(values, "expired")]


def _close_threads(values: Values, state: str) -> list[Step]:
    return [(compiled.DELETE_STATIC_HANDLES, values), (compiled.CLOSE_THREADS, {**values, "state": state})]


def _purge(point: retention.PurgeContext | retention.DeleteContext) -> list[Step]:
    values = parameters(point, limit=TURNS_AT_ONCE, item_limit=ITEMS_AT_ONCE)
    return [(statement, values) for statement in _PURGE]


def _expire_tasks(point: retention.ExpireTasks) -> list[Step]:
    statements = [compiled.DELETE_EVENTS]
    if point.records:
        statements += [compiled.HIDE_TASK, compiled.CLEAR_TURNS, compiled.FREE_KEYS, compiled.DELETE_PUSHES]
    return [(statement, {"task": task}) for task in point.tasks for statement in statements]


def _report_use(point: quotas.ReportUse) -> list[Step]:
    values = parameters(point, callers=json(point.callers))
    return [(compiled.DELETE_LAPSED_USE, values), (compiled.REPORT_USE, values)]


def _issue_key(point: IssueKey) -> list[Step]:
    return [(compiled.NEW_KEY, parameters(point.key, admin=int(point.key.admin)))]


def _put_push(point: push.PutPushConfig) -> list[Step]:
    return [(compiled.PUT_PUSH, parameters(point, **parameters(point.config)))]


_DIRECT: dict[type[CommitPoint], tuple[Statement, ...]] = {
    tasks.Reveal: (compiled.REVEAL_TASK,),
    calls.NameCall: (compiled.NAME_CALL,),
    tool_calls.ToolStarts: (compiled.START_TOOL,),
    tool_calls.ToolWaits: (compiled.PAUSE_TOOL,),
    leases.Claim: (compiled.CLAIM_TURN,),
    leases.CountTries: (compiled.COUNT_TRIES, compiled.REVEAL_GIVEN_UP),
    leases.TakeTriesBack: (compiled.TAKE_TRIES_BACK,),
    leases.Release: (compiled.RELEASE_LEASE,),
    leases.Fence: (compiled.FENCE,),
    leases.Heartbeat: (compiled.DELETE_DEAD_PROCESSES, compiled.HEARTBEAT),
    duties.TakeDuty: (compiled.TAKE_DUTY,),
    duties.LeaveDuty: (compiled.LEAVE_DUTY,),
    quotas.WithdrawUse: (compiled.WITHDRAW_USE,),
    threads.MarkHandleLost: (compiled.MARK_HANDLE_LOST,),
    threads.MarkUnsynced: (compiled.MARK_UNSYNCED,),
    threads.MarkSynced: (compiled.MARK_SYNCED,),
    threads.ConfirmHandle: (compiled.CONFIRM_HANDLE,),
    threads.Rewind: (compiled.DELETE_TURN_HANDLES, compiled.MARK_UNSENT, compiled.REWIND_HANDLE),
    threads.RevertIfDisplaced: (
        compiled.DELETE_DISPLACED_HANDLES,
        compiled.MARK_UNSENT_DISPLACED,
        compiled.REVERT_DISPLACED,
    ),
    threads.LeaveOut: (compiled.LEAVE_OUT,),
    threads.DeleteOrphan: (compiled.DELETE_ORPHAN,),
    threads.KeepHandle: (compiled.KEEP_HANDLE,),
    threads.Withdraw: (compiled.WITHDRAW,),
    retention.MoveDeletion: (compiled.MOVE_DELETION,),
    retention.EndDeletion: (compiled.END_DELETION,),
    retention.MoveWithdrawal: (compiled.MOVE_WITHDRAWAL,),
    retention.EndWithdrawal: (compiled.END_WITHDRAWAL,),
    RevokeKey: (compiled.REVOKE_KEY,),
    EndSessions: (compiled.END_SESSIONS,),
    push.DeletePushConfig: (compiled.DELETE_PUSH,),
    push.ClaimPush: (compiled.CLAIM_PUSH,),
    push.AdvancePush: (compiled.ADVANCE_PUSH,),
    push.CompletePush: (compiled.COMPLETE_PUSH,),
    push.FailPush: (compiled.FAIL_PUSH,),
    push.ReplayPush: (compiled.REPLAY_PUSH,),
    calls.DropPartial: (compiled.DROP_PARTIAL,),
}
"""Points whose fields are the parameters of their statements."""

_CONVERTED: dict[type[CommitPoint], Callable[[Any], list[Step]]] = {
    tasks.Append: turn_units.append,
    turns.Accept: turn_units.accept,
    calls.Prepare: turn_units.prepare,
    calls.Complete: turn_units.complete,
    calls.Fail: turn_units.fail,
    calls.MarkRefused: turn_units.mark_refused,
    calls.SetAside: turn_units.set_aside,
    calls.GiveBack: turn_units.give_back,
    tool_calls.ToolEnds: turn_units.end_tool,
    tool_calls.ToolReported: turn_units.report_tool,
    turns.Suspend: turn_units.suspend,
    turns.Resume: turn_units.resume,
    turns.Decide: turn_units.decide,
    tasks.Finish: turn_units.finish,
    tasks.Close: turn_units.close,
    leases.TakeOver: _take_over,
    leases.Renew: _renew,
    leases.RequestCancel: _request_cancel,
    quotas.ReportUse: _report_use,
    threads.BeginEpoch: _begin_epoch,
    threads.Displace: _displace,
    retention.DeleteContext: _delete_context,
    retention.ExpireContext: _expire_context,
    retention.PurgeContext: _purge,
    retention.ExpireTasks: _expire_tasks,
    IssueKey: _issue_key,
    push.PutPushConfig: _put_push,
    documents.Adopt: adopt,
    documents.Import: import_context,
}
"""All other points. A test compares both tables with the union of the commit points."""


# --- the same unit in fewer steps ---
#
# Points that are committed together may change a row twice in a row; the second change is then made with the first. A
# statement costs what it takes to find its row, and a turn has two such units.

_Once = dict[Statement, Values | None]
"""The parameters of each statement. The value is None when the unit has a statement several times."""

_LEASED = frozenset((compiled.TAKE_LEASE, compiled.TAKE_SYNCED, compiled.KEEP_LEASE))


def merged(steps: list[Step]) -> list[Step]:
    """Merges steps of one unit that change the same row. `steps` are the steps of the unit; their parameters are
    changed in place."""
    if len(steps) == 1:  # as the events of a running turn
        return steps
    once: _Once = dict(steps)
    if len(once) < len(steps):
        once |= {statement: None for statement, times in Counter(step[0] for step in steps).items() if times > 1}
    needless = {*_begun(once), *_ended(once), *_released(once)}
    return [step for step in steps if step[0] not in needless] if needless else steps


def _begun(steps: _Once) -> list[Statement]:
    """A turn that begins with its acceptance, on a new thread: no other process can have its lease or wait there."""
    thread, lease = steps.get(compiled.NEW_THREAD), steps.get(compiled.TAKE_SYNCED)
    turn, run = steps.get(compiled.NEW_TURN), steps.get(compiled.RUN_TURN)
    if thread is None or lease is None or turn is None or run is None:
        return []
    turn["turn_status"], turn["base_generation"] = "running", run["base_generation"]
    turn["started_at"] = run["now"]
    thread["lease_holder"], thread["lease_until"] = lease["holder"], lease["lease_until"]
    thread["generation"] = run["base_generation"]
    return [compiled.TAKE_SYNCED, compiled.RUN_TURN]


def _released(steps: _Once) -> list[Statement]:
    """A lease that ends in the unit that moves the handle of its thread, where no other step asks for it."""
    move, release = steps.get(compiled.MOVE_HANDLE), steps.get(compiled.RELEASE_LEASE)
    if move is None or release is None or move["thread"] != release["thread"] or not steps.keys().isdisjoint(_LEASED):
        return []
    move["released_by"] = release["holder"]
    return [compiled.RELEASE_LEASE]


def _ended(steps: _Once) -> list[Statement]:
    """A service call that ends in the unit that notes its names, or in that of its turn's end."""
    call = steps.get(compiled.COMPLETE_CALL) or steps.get(compiled.FAIL_CALL)
    if call is None:
        return []
    needless = []
    started = steps.get(compiled.NAME_CALL)
    if started is not None and started["service_call"] == call["service_call"]:
        call["pending_handle"], call["run"] = started["handle"], started["run"]
        needless.append(compiled.NAME_CALL)
    turn_end = steps.get(compiled.ABANDON_CALLS)
    if turn_end is not None and turn_end["turn"] == call["turn"]:
        needless.append(compiled.ABANDON_CALLS)
    return needless
