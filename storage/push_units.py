"""The commit points of push notifications as statements. Law: as in `units`."""

import msgspec

from gateway.push_records import DropPush, FailPush, LeavePush, MovePush, PushPoint, PutPush, ReplayPush, TakePush
from storage import compiled as do
from storage.statement import Statement, Step

_STATEMENTS: dict[type[PushPoint], Statement] = {
    PutPush: do.PUT_PUSH,
    DropPush: do.DROP_PUSH,
    TakePush: do.TAKE_PUSH,
    MovePush: do.MOVE_PUSH,
    LeavePush: do.LEAVE_PUSH,
    FailPush: do.FAIL_PUSH,
    ReplayPush: do.REPLAY_PUSH,
}


def pushing(point: PushPoint) -> list[Step]:
    values = msgspec.structs.asdict(point)
    if isinstance(point, PutPush):
        values |= msgspec.structs.asdict(values.pop("config"))
    elif isinstance(point, FailPush):
        values["state"] = point.state.value
    return [(_STATEMENTS[type(point)], values)]
