"""The commit points that say who runs a thread, and where it stands, as statements in order. Law: as in `units`."""

import msgspec

from gateway.commits.leases import AskCancel, Beat, Claim, CountTries, Fence, Release, Renew, TakeOver
from gateway.commits.threads import BeginEpoch, Displace, Keep, Lose, Orphan, Rewind, Synced, TakeBack, Unsync
from storage import compiled as do
from storage.statement import Step, Value


def leased(point: TakeOver | Claim | CountTries | Renew | Release | Fence | Beat | AskCancel) -> list[Step]:
    match point:
        case TakeOver():
            return _take_over(point)
        case Claim():
            return [(do.CLAIM_TURN, msgspec.structs.asdict(point))]
        case CountTries():
            return [(do.COUNT_TRIES, msgspec.structs.asdict(point))]
        case Renew():
            return [
                (do.RENEW_LEASE, {"thread": thread, "holder": point.holder, "lease_until": point.lease_until})
                for thread in point.threads
            ]
        case Release():
            return [(do.RELEASE_LEASE, {"thread": point.thread, "holder": point.holder})]
        case Fence():
            return [(do.FENCE_OFF, {"thread": point.thread, "generation": point.generation, "now": point.now})]
        case Beat():
            values: dict[str, Value] = {
                "process": point.process,
                "alive_until": point.alive_until,
                "now": point.now,
            }
            return [(do.FORGET_PROCESSES, values), (do.BEAT, values)]
        case AskCancel():
            return [(do.ASK_CANCEL, {"turn": turn}) for turn in point.turns]


def elsewhere(point: Lose | Unsync | Synced | BeginEpoch | Rewind | Orphan | Keep) -> list[Step]:
    """Of a thread that cannot simply go on from its handle."""
    values: dict[str, Value] = {"thread": point.thread}
    match point:
        case Lose():
            return [(do.LOSE_HANDLE, values | {"generation": point.generation})]
        case Unsync():
            return [(do.UNSYNC, values | {"turn": point.turn})]
        case Synced():
            return [(do.SYNCED, values | {"generation": point.generation})]
        case BeginEpoch():
            values |= {
                "generation": point.generation,
                "closed": point.closed,
                "storage_owner": point.owner.value,
                "handle_kind": point.handle_kind.value,
                "handle": point.handle,
            }
            return [(do.NEXT_EPOCH, values), (do.KEEP_EPOCH, values), (do.BEGIN_EPOCH, values)]
        case Rewind():
            values |= {"turn": point.turn, "handle": point.handle, "now": point.now}
            return [(do.LEAVE_BRANCH, values), (do.UNSEND, values), (do.WAY_BACK, values)]
        case Orphan():
            return [(do.NEW_ORPHAN, values | {"agent": point.agent, "handle": point.handle, "now": point.now})]
        case Keep():
            return [(do.KEEP_HANDLE, values | {"handle": point.handle})]


def displaced(point: Displace | TakeBack) -> list[Step]:
    values: dict[str, Value] = {"thread": point.thread, "turn": point.turn}
    if isinstance(point, Displace):
        return [(do.DISPLACE, values | {"itself": int(point.itself)})]
    values |= {"now": point.now}
    return [(do.LEAVE_DISPLACED_BRANCH, values), (do.UNSEND_DISPLACED, values), (do.TAKE_BACK, values)]


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
    return [(do.TAKE_LEASE, values), (do.TAKE_TURN, values)]
