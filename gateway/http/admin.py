"""The admin API, beside A2A: operations on whole contexts and on push deliveries, and the health of the agents. Law: a caller
reaches only its own data, and of that of others nothing but numbers.

/admin/api/v1/contexts/{context}?agent=NAME  GET: the context as a document, for another gateway to import
                                             DELETE: the context and everything in it; 204, or 404
/admin/api/v1/contexts:import                POST: such a document, 201 with its id
/admin/api/v1/contexts:adopt                 POST {agent, handle, contextId?}: a context that continues a conversation of the
                                             agent's backend; 201 with its id
/admin/api/v1/push                           GET: the caller's push configurations that are not done, the latest first
/admin/api/v1/push:replay                    POST {taskId, id?}: stopped deliveries continue where they stopped
/admin/api/v1/health                         GET: how each agent stands at its backend, and how many turns it has

Handles go in and out here, and a handle opens any conversation of a backend. Where callers authenticate, these addresses
require an admin key. No secret of a push configuration goes out.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a import errors
from gateway.a2a.errors import A2AError, MethodNotAllowed, echo, invalid
from gateway.a2a.model import Json
from gateway.a2a.nesting import DEEPEST
from gateway.a2a.wire import strict_json
from gateway.foundation.clock import timestamp
from gateway.http.arrival import arrival_of
from gateway.http.audited import AuditLine
from gateway.http.headers import query
from gateway.http.pipeline import Pipeline, check_admin
from gateway.http.reply import Reply, rest_reply
from gateway.ledger.documents import ContextDocument
from gateway.ledger.push import PushState, PushStatus
from gateway.ledger.threads import Caller
from gateway.operations.contexts import Contexts, ContextTransfer
from gateway.operations.push_configs import PushConfigs
from gateway.ports.observer import Target

_API = "/admin/api/v1"

DOCUMENT_DEPTH = DEEPEST + 16
"""The deepest nesting of the document of a context: what may be stored, and the levels of the document around it."""


class AdminRequest(msgspec.Struct, frozen=True):
    """A request of an admin. `line` is that of the audit log."""

    caller: Caller
    scope: Scope
    receive: Receive
    line: AuditLine


Perform = Callable[[AdminRequest], Awaitable[ASGIApp]]


class _Texts(msgspec.Struct, frozen=True, rename="camel"):
    """Base of bodies that have nothing but texts."""


class Adoption(_Texts, frozen=True):
    """`handle` is that of a conversation at the backend of the agent, `context_id` the public id of the new context, one of the
    gateway's own where it is not given."""

    agent: str
    handle: str
    context_id: str | None = None


class Replay(_Texts, frozen=True):
    """`id` is that of one configuration of the task; all of them where it is not given."""

    task_id: str
    id: str | None = None


class ContextMade(msgspec.Struct, frozen=True, rename="camel"):
    """`context_id` is the public id of the new context."""

    context_id: str


class PushProgress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far the deliveries of a push configuration are: the next event of its task that is posted, failed attempts for it,
    when it is tried again, and why it was not delivered."""

    task_id: str
    id: str
    agent: str
    url: str
    state: PushState
    next_event: int
    attempts: int
    next_attempt: str | None = None
    last_error: str | None = None


class PushStates(msgspec.Struct, frozen=True):
    configs: list[PushProgress]


class Replayed(msgspec.Struct, frozen=True):
    """How many configurations go on."""

    replayed: int


class HealthOfAgent(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How an agent stands. `state` is `ok`, `silent` (nothing has come for 30 s of `silent_calls` of its `open_calls`), `down`
    (its backend was not there several times in a row; the next request tells whether it is there again) or `left-alone`
    (nothing is asked of it for `asked_again_in` seconds more). It has been so `since` a time. The turns are those of all
    callers of the tenant; `failed_turns` are of the last hour. `first_event` is the median of the milliseconds to the first
    event of an answer, over the latest turns."""

    agent: str
    state: Literal["ok", "silent", "down", "left-alone"]
    open_calls: int
    silent_calls: int
    running_turns: int
    queued_turns: int
    waiting_turns: int
    failed_turns: int
    since: str | None = None
    asked_again_in: int | None = None
    first_event: float | None = None


class HealthOfAgents(msgspec.Struct, frozen=True):
    """What a backend counts as, and whether a call is silent in the middle of its answer, is told as the process that answers
    knows it."""

    agents: list[HealthOfAgent]


ReadHealth = Callable[[Caller], Awaitable[HealthOfAgents]]


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What an HTTP method does at an address. `query` are the parameters of its URL, which may be left out; `body` is the type
    of what is read, `answer` that of what is sent with `status`; None for nothing. `refusals` are errors of its own. `audited`
    is its name in the audit log; reads have none."""

    perform: Perform
    name: str
    summary: str
    query: tuple[str, ...] = ()
    body: type | None = None
    answer: type | None = None
    status: int = 200
    refusals: tuple[type[A2AError], ...] = ()
    audited: str = ""


class AdminAddress(msgspec.Struct, frozen=True):
    """`path` is as Starlette has it, `actions` are by HTTP method."""

    path: str
    pipeline: Pipeline
    actions: Mapping[str, Action]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refuse = partial(rest_reply, allowed=self.actions)
        await self.pipeline.respond(self._answer(scope, receive), refuse, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp:
        action = self.actions.get(scope["method"])
        if action is None:
            raise MethodNotAllowed(f"{echo(scope['method'])} is not a method of this address")
        arrival = arrival_of(scope)
        identity = await self.pipeline.identify(arrival)
        with self.pipeline.audited(action.audited, identity, arrival) as line:
            line.target = Target(context=scope["path_params"].get("context", ""))
            check_admin(identity, "the admin API")
            return await action.perform(AdminRequest(identity.caller, scope, receive, line))


def admin_addresses(
    pipeline: Pipeline,
    contexts: Contexts | None,
    transfer: ContextTransfer | None,
    push_configs: PushConfigs | None,
    read_health: ReadHealth | None,
) -> list[AdminAddress]:
    found: dict[str, dict[str, Action]] = {}
    if contexts is not None and transfer is not None:
        found |= _ContextAdmin(pipeline, contexts, transfer).actions()
    if push_configs is not None:
        found |= _PushAdmin(pipeline, push_configs).actions()
    if read_health is not None:
        found |= _HealthAdmin(pipeline, read_health).actions()
    return [AdminAddress(f"{_API}{path}", pipeline, actions) for path, actions in found.items()]


class _Admin(msgspec.Struct, frozen=True):
    pipeline: Pipeline

    async def _read(self, request: AdminRequest, *, depth: int | None = None) -> Json:
        document = await self.pipeline.read_json(request.scope, request.receive, depth=depth)
        strict_json.check_text(document.body, document.value)
        return document.value


class _ContextAdmin(_Admin, frozen=True):
    contexts: Contexts
    transfer: ContextTransfer

    def actions(self) -> dict[str, dict[str, Action]]:
        bring = Action(
            perform=self.import_,
            name="ImportContext",
            audited="context.imported",
            summary="Takes a context in that another gateway has exported",
            body=ContextDocument,
            answer=ContextMade,
            status=201,
        )
        adopt = Action(
            perform=self.adopt,
            name="AdoptConversation",
            audited="context.adopted",
            summary="Makes a context that continues a conversation of an agent's backend",
            body=Adoption,
            answer=ContextMade,
            status=201,
            refusals=(errors.NotFound, errors.UnsupportedOperation),
        )
        export = Action(
            perform=self.export,
            name="ExportContext",
            audited="context.exported",
            summary="Gives a context as a document, for another gateway to import",
            answer=ContextDocument,
            refusals=(errors.NotFound, errors.UnsupportedOperation),
        )
        delete = Action(
            perform=self.delete,
            name="DeleteContext",
            audited="context.deleted",
            summary="Deletes a context with everything in it, or what it has with one agent",
            query=("agent",),
            status=204,
            refusals=(errors.NotFound,),
        )
        return {
            "/contexts:import": {"POST": bring},
            "/contexts:adopt": {"POST": adopt},
            "/contexts/{context:path}": {"GET": export, "DELETE": delete},
        }

    async def delete(self, request: AdminRequest) -> ASGIApp:
        caller, context = request.caller, request.scope["path_params"]["context"]
        name = dict(query(request.scope["query_string"])).get("agent") or None
        request.line.target = Target(agent=name or "", context=context, principal=caller.principal)
        agent = None if name is None else self.pipeline.agents.resolve(name, None)
        await self.contexts.delete(caller, context, agent)
        return Reply(b"", 204)

    async def export(self, request: AdminRequest) -> ASGIApp:
        caller, context = request.caller, request.scope["path_params"]["context"]
        request.line.target = Target(context=context, principal=caller.principal)
        return Reply(await self.transfer.export(caller, context))

    async def import_(self, request: AdminRequest) -> ASGIApp:
        caller, line = request.caller, request.line
        document = await self._read(request, depth=DOCUMENT_DEPTH)
        line.target = Target(context=context_in(document), principal=caller.principal)
        agents, limits = self.pipeline.agents, self.pipeline.limits
        context = await self.transfer.import_document(caller, agents, document, limits)
        return _reply(ContextMade(context), 201)

    async def adopt(self, request: AdminRequest) -> ASGIApp:
        caller, line = request.caller, request.line
        wanted = _texts(Adoption, await self._read(request))
        line.target = Target(agent=wanted.agent, context=wanted.context_id or "", principal=caller.principal)
        agent, limits = self.pipeline.agents.resolve(wanted.agent, None), self.pipeline.limits
        context = await self.transfer.adopt(caller, agent, wanted.handle, wanted.context_id, limits)
        line.target = replace(line.target, context=context)
        return _reply(ContextMade(context), 201)


class _PushAdmin(_Admin, frozen=True):
    configs: PushConfigs

    def actions(self) -> dict[str, dict[str, Action]]:
        unfinished = Action(
            perform=self.unfinished,
            name="ListUnfinishedPush",
            summary="Lists the caller's push configurations that are not done, the latest first",
            answer=PushStates,
        )
        replay = Action(
            perform=self.replay,
            name="ReplayPush",
            audited="push.replayed",
            summary="Lets stopped deliveries continue where they stopped",
            body=Replay,
            answer=Replayed,
            refusals=(errors.NotFound,),
        )
        return {"/push:replay": {"POST": replay}, "/push": {"GET": unfinished}}

    async def unfinished(self, request: AdminRequest) -> ASGIApp:
        found = await self.configs.statuses(request.caller)
        return _reply(PushStates([_progress(status) for status in found]))

    async def replay(self, request: AdminRequest) -> ASGIApp:
        caller = request.caller
        wanted = _texts(Replay, await self._read(request))
        request.line.target = Target(task=wanted.task_id, push=wanted.id or "", principal=caller.principal)
        replayed = await self.configs.replay(caller, wanted.task_id, wanted.id)
        return _reply(Replayed(replayed))


class _HealthAdmin(_Admin, frozen=True):
    read: ReadHealth

    def actions(self) -> dict[str, dict[str, Action]]:
        health = Action(
            perform=self.health,
            name="GetHealth",
            summary="Tells how each agent stands at its backend, and how many turns it has",
            answer=HealthOfAgents,
        )
        return {"/health": {"GET": health}}

    async def health(self, request: AdminRequest) -> ASGIApp:
        return _reply(await self.read(request.caller))


T = TypeVar("T", bound=_Texts)


def context_in(document: Json) -> str:
    """The id of the context in the document of one; empty where it has none."""
    found = document.get("contextId") if isinstance(document, dict) else None
    return found if isinstance(found, str) else ""


def _texts(kind: type[T], wanted: Json) -> T:
    """The body as this type. Raises: InvalidParams."""
    found: dict[str, str | None] = {}
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        value = wanted.get(name) if isinstance(wanted, dict) else None
        if not isinstance(value, str) and (field.required or value is not None):
            raise invalid(name, "must be given as text" if field.required else "must be text")
        found[field.name] = value if field.required else value or None
    return kind(**found)


def _reply(answer: msgspec.Struct, status: int = 200) -> Reply:
    return Reply(msgspec.json.encode(answer), status)


def _progress(status: PushStatus) -> PushProgress:
    config = status.config
    return PushProgress(
        task_id=config.task,
        id=config.id,
        agent=status.agent,
        url=config.url,
        state=status.state,
        next_event=status.next_event,
        attempts=status.attempts,
        next_attempt=timestamp(status.due_at) if status.due_at else None,
        last_error=status.last_error,
    )
