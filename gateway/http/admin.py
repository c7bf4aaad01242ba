"""The admin API, beside A2A: what a person does to whole conversations. Law: a caller reaches only what is their own.

/admin/api/v1/contexts/{id}?agent=NAME     GET: the context as a document, to be imported elsewhere
                                           DELETE: the context and all that was said in it; 204, or 404
/admin/api/v1/contexts:import              POST: such a document, 201 with its id
/admin/api/v1/contexts:adopt               POST {agent, handle, contextId?}: a context that goes on from a conversation
                                           that the agent's backend has; 201 with its id

Handles go in and out here: whoever may not choose any conversation of the backends must not reach these addresses. Where
callers are asked who they are, that takes an admin key.

The admin API's part about push notifications. Law: as in `admin`; nothing secret of a configuration is told.

/admin/api/v1/push                         GET: the caller's configurations that are not done, the latest first
/admin/api/v1/push:replay                  POST {taskId, id?}: what was stopped goes on where it stands
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a.errors import A2AError, MethodNotAllowed, echo, invalid
from gateway.a2a.model import Json
from gateway.a2a.wire import strict_json
from gateway.foundation.clock import timestamp
from gateway.http.front import ClientGone, Document, Front
from gateway.http.headers import query
from gateway.http.replies import Reply, rest_reply
from gateway.ledger.push import PushStatus
from gateway.ledger.threads import Caller
from gateway.operations.contexts import Contexts, ContextTransfer
from gateway.operations.push_configs import PushConfigs

_CONTEXTS = "/admin/api/v1/contexts"

_WRAPPING = 16
"""Levels that a document puts around what a message may hold."""

Answer = Callable[[Scope, Receive], Awaitable[ASGIApp]]


def admin_routes(front: Front, contexts: Contexts, transfer: ContextTransfer) -> list[Route]:
    admin = _Admin(front, contexts, transfer)
    return [
        Route(f"{_CONTEXTS}:import", Address(front, {"POST": admin.bring})),
        Route(f"{_CONTEXTS}:adopt", Address(front, {"POST": admin.adopt})),
        Route(f"{_CONTEXTS}/{{context:path}}", Address(front, {"GET": admin.export, "DELETE": admin.delete})),
    ]


class Address:
    """What each HTTP method means at one address."""

    def __init__(self, front: Front, answers: Mapping[str, Answer]) -> None:
        self._front = front
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._front.answer(self._answer(scope, receive), self._refuse)
        except ClientGone:
            return
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp:
        answer = self._answers.get(scope["method"])
        if answer is None:
            raise MethodNotAllowed(f"{echo(scope['method'])} is not a method of this address")
        return await answer(scope, receive)

    def _refuse(self, error: A2AError) -> ASGIApp:
        allowed = ", ".join(sorted(self._answers)).encode()
        return rest_reply(error, headers=((b"allow", allowed),) if isinstance(error, MethodNotAllowed) else ())


class _Admin:
    def __init__(self, front: Front, contexts: Contexts, transfer: ContextTransfer) -> None:
        self._front = front
        self._contexts = contexts
        self._transfer = transfer

    async def _caller(self, scope: Scope, agent: str | None = None) -> Caller:
        return (await self._front.admit(scope, agent, admin=True)).caller

    async def delete(self, scope: Scope, receive: Receive) -> ASGIApp:
        name = dict(query(scope)).get("agent") or None
        caller = await self._caller(scope, name)
        agent = None if name is None else self._front.agents.resolve(name, None)
        await self._contexts.delete(caller, scope["path_params"]["context"], agent)
        return Reply(b"", 204)

    async def export(self, scope: Scope, receive: Receive) -> ASGIApp:
        caller = await self._caller(scope)
        return Reply(await self._transfer.export(caller, scope["path_params"]["context"]))

    async def bring(self, scope: Scope, receive: Receive) -> ASGIApp:
        caller = await self._caller(scope)
        document = await self._read(scope, receive)
        return _made(
            await self._transfer.bring(caller, self._front.agents, document.value, self._front.settings.limits)
        )

    async def adopt(self, scope: Scope, receive: Receive) -> ASGIApp:
        caller = await self._caller(scope)
        value = (await self._read(scope, receive)).value
        wanted = value if isinstance(value, dict) else {}
        for name in ("agent", "handle"):
            if not isinstance(wanted.get(name), str):
                raise invalid(name, "must be given as text")
        context_id = wanted.get("contextId")
        if context_id is not None and not isinstance(context_id, str):
            raise invalid("contextId", "must be text")
        agent = self._front.agents.resolve(wanted["agent"], None)
        limits = self._front.settings.limits
        return _made(await self._transfer.adopt(caller, agent, wanted["handle"], context_id or None, limits))

    async def _read(self, scope: Scope, receive: Receive) -> Document:
        document = await self._front.read_json(scope, receive, deeper=_WRAPPING)
        strict_json.check_text(document.body, document.value)
        return document


def _made(context_id: str) -> ASGIApp:
    return Reply(msgspec.json.encode({"contextId": context_id}), 201)


_PUSH = "/admin/api/v1/push"


def push_routes(front: Front, pushes: PushConfigs) -> list[Route]:
    admin = _PushAdmin(front, pushes)
    return [
        Route(f"{_PUSH}:replay", Address(front, {"POST": admin.replay})),
        Route(_PUSH, Address(front, {"GET": admin.standing})),
    ]


class _PushAdmin:
    def __init__(self, front: Front, pushes: PushConfigs) -> None:
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
