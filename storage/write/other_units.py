"""The commit points by which something ends, as statements in order. Law: as in `units`.

The commit points of API keys, as statements. Law: as in `units`.

The commit points of push notifications as statements. Law: as in `units`.

The commit points that say who runs a thread, and where it stands, as statements in order. Law: as in `units`.

What answers a turn that waits, as statements. Law: as in `units`.
"""

import msgspec

from gateway.ledger.api_keys import IssueKey, RevokeKey
from gateway.ledger.leases import Claim, CountTries, Fence, Heartbeat, Release, Renew, RequestCancel, TakeOver
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
from gateway.ledger.retention import DeleteContext, EndDeletion, ExpireContext, ExpireTasks, MoveDeletion, PurgeContext
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
from gateway.ledger.turns import Decide
from gateway.ports import conversation
from gateway.ports.weight import weight
from storage import compiled
from storage.statement import Statement, Step, Value

TURNS_AT_ONCE = 100
ITEMS_AT_ONCE = 1000
"""Rows that one piece of a purge takes at most: few enough that a turn that commits behind it does not notice."""

_PURGE: tuple[Statement, ...] = (
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

Ending = DeleteContext | ExpireContext | PurgeContext | ExpireTasks | MoveDeletion | EndDeletion


def ending(point: Ending) -> list[Step]:
    match point:
        case DeleteContext():
            return _delete_context(point)
        case ExpireContext():
            return _expire_context(point)
        case PurgeContext():
            return _purge(point.context, point.now)
        case ExpireTasks():
            return [step for task in point.tasks for step in _expire_task(task, records=point.records)]
        case MoveDeletion():
            moved: dict[str, Value] = {
                "job": point.job,
                "due_at": point.due_at,
                "until": point.until,
                "attempts": point.attempts,
            }
            return [(compiled.MOVE_DELETION, moved)]
        case EndDeletion():
            return [(compiled.END_DELETION, {"job": point.job, "due_at": point.due_at})]


def _delete_context(point: DeleteContext) -> list[Step]:
    values: dict[str, Value] = {
        "tenant": point.caller.tenant,
        "principal": point.caller.principal,
        "context": point.context,
        "now": point.now,
    }
    return [
        (compiled.DELETE_CONTEXT, values),
        *_bury(point.context, point.now, "deleted"),
        *_purge(point.context, point.now),
    ]


def _expire_context(point: ExpireContext) -> list[Step]:
    values: dict[str, Value] = {"context": point.context, "idle_before": point.idle_before}
    return [(compiled.EXPIRE_CONTEXT, values), *_bury(point.context, point.now, "expired")]


def _bury(context: str, now: int, state: str) -> list[Step]:
    values: dict[str, Value] = {"context": context, "now": now, "state": state}
    return [(compiled.DELETE_STATIC_HANDLES, values), (compiled.CLOSE_THREADS, values)]


def _purge(context: str, now: int) -> list[Step]:
    values: dict[str, Value] = {
        "context": context,
        "now": now,
        "limit": TURNS_AT_ONCE,
        "item_limit": ITEMS_AT_ONCE,
    }
    return [(statement, values) for statement in _PURGE]


def _expire_task(task: str, *, records: bool) -> list[Step]:
    values: dict[str, Value] = {"task": task}
    steps: list[Step] = [(compiled.DELETE_EVENTS, values)]
    if records:
        steps += [
            (statement, values)
            for statement in (compiled.HIDE_TASK, compiled.CLEAR_TURNS, compiled.FREE_KEYS, compiled.DELETE_PUSHES)
        ]
    return steps


def keyed(point: IssueKey | RevokeKey) -> list[Step]:
    match point:
        case IssueKey(key=key):
            values: dict[str, Value] = {
                "digest": key.digest,
                "name": key.name,
                "prefix": key.prefix,
                "principal": key.principal,
                "tenant": key.tenant,
                "admin": int(key.admin),
                "created_at": key.created_at,
                "expires_at": key.expires_at,
                "revoked_at": key.revoked_at,
            }
            return [(compiled.NEW_KEY, values)]
        case RevokeKey():
            return [(compiled.REVOKE_KEY, {"key_name": point.name, "now": point.now})]


_STATEMENTS: dict[type[PushPoint], Statement] = {
    PutPushConfig: compiled.PUT_PUSH,
    DeletePushConfig: compiled.DELETE_PUSH,
    ClaimPush: compiled.CLAIM_PUSH,
    AdvancePush: compiled.ADVANCE_PUSH,
    CompletePush: compiled.COMPLETE_PUSH,
    FailPush: compiled.FAIL_PUSH,
    ReplayPush: compiled.REPLAY_PUSH,
}


def pushing(point: PushPoint) -> list[Step]:
    values = msgspec.structs.asdict(point)
    if isinstance(point, PutPushConfig):
        values |= msgspec.structs.asdict(values.pop("config"))
    elif isinstance(point, FailPush):
        values["state"] = point.state.value
    return [(_STATEMENTS[type(point)], values)]


def leased(point: TakeOver | Claim | CountTries | Renew | Release | Fence | Heartbeat | RequestCancel) -> list[Step]:
    match point:
        case TakeOver():
            return _take_over(point)
        case Claim():
            return [(compiled.CLAIM_TURN, msgspec.structs.asdict(point))]
        case CountTries():
            return [(compiled.COUNT_TRIES, msgspec.structs.asdict(point))]
        case Renew():
            return [
                (compiled.RENEW_LEASE, {"thread": thread, "holder": point.holder, "lease_until": point.lease_until})
                for thread in point.threads
            ]
        case Release():
            return [(compiled.RELEASE_LEASE, {"thread": point.thread, "holder": point.holder})]
        case Fence():
            return [(compiled.FENCE, {"thread": point.thread, "generation": point.generation, "now": point.now})]
        case Heartbeat():
            values: dict[str, Value] = {
                "process": point.process,
                "alive_until": point.alive_until,
                "now": point.now,
            }
            return [(compiled.DELETE_DEAD_PROCESSES, values), (compiled.HEARTBEAT, values)]
        case RequestCancel():
            return [(compiled.REQUEST_CANCEL, {"turn": turn}) for turn in point.turns]


def elsewhere(
    point: MarkHandleLost | MarkUnsynced | MarkSynced | BeginEpoch | Rewind | DeleteOrphan | KeepHandle,
) -> list[Step]:
    """Of a thread that cannot simply go on from its handle."""
    values: dict[str, Value] = {"thread": point.thread}
    match point:
        case MarkHandleLost():
            return [(compiled.MARK_HANDLE_LOST, values | {"generation": point.generation})]
        case MarkUnsynced():
            return [(compiled.MARK_UNSYNCED, values | {"turn": point.turn})]
        case MarkSynced():
            return [(compiled.MARK_SYNCED, values | {"generation": point.generation})]
        case BeginEpoch():
            values |= {
                "generation": point.generation,
                "closed": point.closed,
                "storage_owner": point.owner.value,
                "handle_kind": point.handle_kind.value,
                "handle": point.handle,
            }
            return [(compiled.NEXT_EPOCH, values), (compiled.ARCHIVE_EPOCH, values), (compiled.BEGIN_EPOCH, values)]
        case Rewind():
            values |= {"turn": point.turn, "handle": point.handle, "now": point.now}
            return [
                (compiled.DELETE_TURN_HANDLES, values),
                (compiled.MARK_UNSENT, values),
                (compiled.REWIND_HANDLE, values),
            ]
        case DeleteOrphan():
            return [(compiled.DELETE_ORPHAN, values | {"agent": point.agent, "handle": point.handle, "now": point.now})]
        case KeepHandle():
            return [(compiled.KEEP_HANDLE, values | {"handle": point.handle})]


def displaced(point: Displace | RevertIfDisplaced) -> list[Step]:
    values: dict[str, Value] = {"thread": point.thread, "turn": point.turn}
    if isinstance(point, Displace):
        return [(compiled.DISPLACE, values | {"itself": int(point.itself)})]
    values |= {"now": point.now}
    return [
        (compiled.DELETE_DISPLACED_HANDLES, values),
        (compiled.MARK_UNSENT_DISPLACED, values),
        (compiled.REVERT_DISPLACED, values),
    ]


def _take_over(point: TakeOver) -> list[Step]:
    values: dict[str, Value] = {
        "thread": point.thread,
        "generation": point.generation,
        "base_generation": point.generation + 1,
        "holder": point.holder,
        "lease_until": point.lease_until,
        "turn": point.turn,
        "tries": point.tries,
        "now": point.now,
    }
    return [(compiled.TAKE_LEASE, values), (compiled.TAKE_OVER_TURN, values)]


_encoder = msgspec.json.Encoder()


def decided(point: Decide) -> list[Step]:
    values: dict[str, Value] = {
        "tenant": point.caller.tenant,
        "principal": point.caller.principal,
        "agent": point.agent,
        "context": point.context,
        "thread": point.thread,
        "generation": point.generation,
        "task": point.task,
        "turn": point.turn,
        "now": point.now,
    }
    steps: list[Step] = [(compiled.ANSWER_TURN, values)]
    given = point.answer
    if given is not None:
        values |= {
            "ordinal": given.ordinal,
            "message_id": given.message.message_id,
            "message": _encoder.encode(given.message).decode(),
            "said_at": given.event,
            "digest": given.digest,
            "key_kind": given.key.kind if given.key else None,
            "key": given.key.key if given.key else None,
        }
        steps = [(compiled.USE_CONTEXT, values), *steps, (compiled.NEXT_INPUT, values)]
        steps += [_said(item, point) for item in given.items]
    for verdict in point.verdicts:
        decision: dict[str, Value] = {
            "tool_call": verdict.tool_call,
            "call_digest": verdict.digest,
            "decision": verdict.decision,
            "by": verdict.by,
            "standing": point.context if verdict.always else None,
        }
        steps.append((compiled.DECIDE_TOOL, values | decision))
    steps += [(compiled.RETRY_TOOL, values | {"tool_call": call}) for call in point.retries]
    if point.question is not None:
        question = _encoder.encode(point.question).decode()
        steps.append((compiled.SET_QUESTION, values | {"question": question, "state": point.state.value}))
    if point.goes_on:
        steps.append((compiled.START_TASK, values))
    return steps


def _said(item: conversation.Item, point: Decide) -> Step:
    """What the caller says beside its answers. Its message is an input, and this is only a part of it."""
    values: dict[str, Value] = {
        "thread": point.thread,
        "turn": point.turn,
        "service_call": None,
        "tool_call": None,
        "kind": conversation.kind(item),
        "provider_id": None,
        "replayable": 1,
        "sent_in": None,
        "weight": weight(item),
        "payload": conversation.encode(item).decode(),
    }
    return compiled.NEW_ITEM, values
