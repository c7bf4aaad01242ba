"""The admin API, beside A2A: operations on whole contexts and on push deliveries. Law: a caller reaches only its own data.

/admin/api/v1/contexts/{id}?agent=NAME     GET: the context as a document, for another gateway to import
                                           DELETE: the context and everything in it; 204, or 404
/admin/api/v1/contexts:import              POST: such a document, 201 with its id
/admin/api/v1/contexts:adopt               POST {agent, handle, contextId?}: a context that continues a conversation of the
                                           agent's backend; 201 with its id
/admin/api/v1/push                         GET: the caller's push configurations that are not done, the latest first
/admin/api/v1/push:replay                  POST {taskId, id?}: stopped deliveries continue where they stopped

Handles go in and out here, and a handle opens any conversation of a backend. Where callers authenticate, these addresses
require an admin key. No secret of a push configuration goes out.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a.errors import MethodNotAllowed, echo, invalid
from gateway.a2a.model import Json
from gateway.a2a.nesting import DEEPEST
from gateway.a2a.wire import strict_json
from gateway.foundation.clock import timestamp
from gateway.http.arrival import arrival_of
from gateway.http.headers import query
from gateway.http.pipeline import Pipeline
from gateway.http.reply import Reply, rest_reply
from gateway.ledger.push import PushStatus
from gateway.ledger.threads import Caller
from gateway.operations.contexts import Contexts, ContextTransfer
from gateway.operations.push_configs import PushConfigs
from gateway.ports.observer import Target

_API = "/admin/api/v1"

_DOCUMENT_DEPTH = DEEPEST + 16
"""The deepest nesting of the document of a context: what may be stored, and the levels of the document around it."""

Answer = Callable[[Scope, Receive], Awaitable[ASGIApp]]


def admin_routes(
    pipeline: Pipeline, contexts: Contexts | None, transfer: ContextTransfer | None, push_configs: PushConfigs | None
) -> list[Route]:
    found: dict[str, dict[str, Answer]] = {}
    if contexts is not None and transfer is not None:
        admin = _ContextAdmin(pipeline, contexts, transfer)
        found["/contexts:import"] = {"POST": admin.import_}
        found["/contexts:adopt"] = {"POST": admin.adopt}
        found["/contexts/{context:path}"] = {"GET": admin.export, "DELETE": admin.delete}
    if push_configs is not None:
        push_admin = _PushAdmin(pipeline, push_configs)
        found["/push:replay"] = {"POST": push_admin.replay}
        found["/push"] = {"GET": push_admin.unfinished}
    return [Route(f"{_API}{path}", _Address(pipeline, answers)) for path, answers in found.items()]


class _Address(msgspec.Struct, frozen=True):
    """The answer to each HTTP method at one address."""

    pipeline: Pipeline
    answers: Mapping[str, Answer]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refuse = partial(rest_reply, allowed=self.answers)
        await self.pipeline.respond(self._answer(scope, receive), refuse, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp:
        answer = self.answers.get(scope["method"])
        if answer is None:
            raise MethodNotAllowed(f"{echo(scope['method'])} is not a method of this address")
        return await answer(scope, receive)


class _Admitted(msgspec.Struct, frozen=True):
    """`audited` gets an action and its target."""

    caller: Caller
    audited: Callable[..., None]


class _Admin(msgspec.Struct, frozen=True):
    pipeline: Pipeline

    async def _admit(self, scope: Scope, agent: str | None = None) -> "_Admitted":
        admitted = await self.pipeline.admit(arrival_of(scope), agent, admin=True)
        return _Admitted(admitted.identity.caller, partial(self.pipeline.audited, admitted=admitted))

    async def _read(self, scope: Scope, receive: Receive, *, depth: int | None = None) -> Json:
        document = await self.pipeline.read_json(scope, receive, depth=depth)
        strict_json.check_text(document.body, document.value)
        return document.value


class _ContextAdmin(_Admin, frozen=True):
    contexts: Contexts
    transfer: ContextTransfer

    async def delete(self, scope: Scope, receive: Receive) -> ASGIApp:
        name = dict(query(scope["query_string"])).get("agent") or None
        admitted, context = await self._admit(scope, name), scope["path_params"]["context"]
        agent = None if name is None else self.pipeline.agents.resolve(name, None)
        await self.contexts.delete(admitted.caller, context, agent)
        admitted.audited("context.deleted", target=Target(agent=name or "", context=context))
        return Reply(b"", 204)

    async def export(self, scope: Scope, receive: Receive) -> ASGIApp:
        admitted, context = await self._admit(scope), scope["path_params"]["context"]
        document = await self.transfer.export(admitted.caller, context)
        admitted.audited("context.exported", target=Target(context=context))
        return Reply(document)

    async def import_(self, scope: Scope, receive: Receive) -> ASGIApp:
        admitted = await self._admit(scope)
        document = await self._read(scope, receive, depth=_DOCUMENT_DEPTH)
        agents, limits = self.pipeline.agents, self.pipeline.limits
        context = await self.transfer.import_document(admitted.caller, agents, document, limits)
        admitted.audited("context.imported", target=Target(context=context))
        return _created(context)

    async def adopt(self, scope: Scope, receive: Receive) -> ASGIApp:
        admitted = await self._admit(scope)
        wanted = await self._read(scope, receive)
        name, handle, context_id = _text(wanted, "agent"), _text(wanted, "handle"), _optional_text(wanted, "contextId")
        agent = self.pipeline.agents.resolve(name, None)
        context = await self.transfer.adopt(admitted.caller, agent, handle, context_id, self.pipeline.limits)
        admitted.audited("context.adopted", target=Target(agent=name, context=context))
        return _created(context)


class _PushAdmin(_Admin, frozen=True):
    configs: PushConfigs

    async def unfinished(self, scope: Scope, receive: Receive) -> ASGIApp:
        found = await self.configs.statuses((await self._admit(scope)).caller)
        return Reply(msgspec.json.encode({"configs": [_push_json(status) for status in found]}))

    async def replay(self, scope: Scope, receive: Receive) -> ASGIApp:
        admitted = await self._admit(scope)
        wanted = await self._read(scope, receive)
        task, config = _text(wanted, "taskId"), _optional_text(wanted, "id")
        replayed = await self.configs.replay(admitted.caller, task, config)
        admitted.audited("push.replayed", target=Target(task=task, push=config or ""))
        return Reply(msgspec.json.encode({"replayed": replayed}))


def _text(wanted: Json, name: str, requirement: str = "must be given as text") -> str:
    value = wanted.get(name) if isinstance(wanted, dict) else None
    if not isinstance(value, str):
        raise invalid(name, requirement)
    return value


def _optional_text(wanted: dict[str, Json], name: str) -> str | None:
    return None if wanted.get(name) is None else _text(wanted, name, "must be text") or None


def _created(context_id: str) -> ASGIApp:
    return Reply(msgspec.json.encode({"contextId": context_id}), 201)


def _push_json(status: PushStatus) -> dict[str, Json]:
    config = status.config
    found: dict[str, Json] = {
        "taskId": config.task,
        "id": config.id,
        "agent": status.agent,
        "url": config.url,
        "state": status.state.value,
        "nextEvent": status.next_event,
        "attempts": status.attempts,
    }
    if status.due_at:
        found["nextAttempt"] = timestamp(status.due_at)
    if status.last_error is not None:
        found["lastError"] = status.last_error
    return found
