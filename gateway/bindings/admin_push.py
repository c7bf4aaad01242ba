"""The admin API's part about push notifications. Law: as in `admin`; nothing secret of a configuration is told.

/admin/api/v1/push                         GET: the caller's configurations that are not done, the latest first
/admin/api/v1/push:replay                  POST {taskId, id?}: what was stopped goes on where it stands
"""

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope

from gateway.bindings.admin import Address
from gateway.bindings.common import Front
from gateway.bindings.reply import Reply
from gateway.clock import timestamp
from gateway.errors import invalid
from gateway.model import Json
from gateway.push import Pushes
from gateway.push_records import PushStatus
from gateway.wire import strict_json

_ALL = "/admin/api/v1/push"


def push_routes(front: Front, pushes: Pushes) -> list[Route]:
    admin = _PushAdmin(front, pushes)
    return [
        Route(f"{_ALL}:replay", Address(front, {"POST": admin.replay})),
        Route(_ALL, Address(front, {"GET": admin.standing})),
    ]


class _PushAdmin:
    def __init__(self, front: Front, pushes: Pushes) -> None:
        self._front = front
        self._pushes = pushes

    async def standing(self, scope: Scope, receive: Receive) -> ASGIApp:
        caller = (await self._front.admit(scope, None, admin=True)).caller
        found = await self._pushes.standing(caller)
        return Reply(msgspec.json.encode({"configs": [_told(status) for status in found]}))

    async def replay(self, scope: Scope, receive: Receive) -> ASGIApp:
        caller = (await self._front.admit(scope, None, admin=True)).caller
        document = await self._front.read_json(scope, receive)
        strict_json.check_text(document.body, document.value)
        wanted = document.value if isinstance(document.value, dict) else {}
        task, config = wanted.get("taskId"), wanted.get("id")
        if not isinstance(task, str):
            raise invalid("taskId", "must be given as text")
        if config is not None and not isinstance(config, str):
            raise invalid("id", "must be text")
        return Reply(msgspec.json.encode({"replayed": await self._pushes.replay(caller, task, config or None)}))


def _told(status: PushStatus) -> dict[str, Json]:
    config = status.config
    told: dict[str, Json] = {
        "taskId": config.task,
        "id": config.id,
        "agent": status.agent,
        "url": config.url,
        "state": status.state.value,
        "nextEvent": status.next_event,
        "attempts": status.attempts,
    }
    if status.due_at:
        told["nextAttempt"] = timestamp(status.due_at)
    if status.last_error is not None:
        told["lastError"] = status.last_error
    return told
