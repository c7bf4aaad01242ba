"""The addresses of the gateway: cards, JSON-RPC at the base address of an agent, HTTP+JSON below it.

/                                            for browsers, a page about the agents: `gateway.ui.front`
/.well-known/agent-card.json                 the card of the only or the default agent
/a2a                                         GET: all cards; POST: JSON-RPC to the agent in `tenant`, or the default one
/a2a/{agent}                                 POST: JSON-RPC; with and without a slash at the end
/a2a/{agent}/.well-known/agent-card.json     the card
/a2a/{agent}/message:send ...                HTTP+JSON; also /a2a/{agent}/{tenant}/... and /a2a/...
/a2a/{agent}/v1/message:send ...             HTTP+JSON of A2A 0.3; also /a2a/v1/...
/openapi.json                                what stands at the addresses of HTTP+JSON and the admin API: `gateway.http.openapi`
/admin/api/v1/...                            whole contexts and undelivered push notifications: `gateway.http.admin`
/.well-known/jwks.json                       the public keys of signed cards and notifications, where any are signed
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Literal

import msgspec
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from gateway.a2a.errors import NoSuchAddress
from gateway.foundation.clock import Clock
from gateway.http.admin import AdminAddress, ReadHealth, admin_addresses
from gateway.http.cards import Cards
from gateway.http.documents import READS, CachedDocument, LateDocument
from gateway.http.jsonrpc import JsonRpc
from gateway.http.pipeline import Pipeline
from gateway.http.reply import rest_reply
from gateway.http.rest import Rest
from gateway.http.rest_addresses import V0_3, Resource, resource
from gateway.operations.contexts import Contexts, ContextTransfer
from gateway.operations.push_configs import PushConfigs

JWKS_PATH = "/.well-known/jwks.json"
OPENAPI_PATH = "/openapi.json"
CARDS_PATH = _BASE = "/a2a"
_BELOW = "/a2a/"
_CARD = [".well-known", "agent-card.json"]
_PREFIXES = 3  # /a2a, /a2a/{agent} and /a2a/{agent}/{tenant}: an operation's path follows one of them
_PREFIXES_OF_0_3 = 2  # it has no tenants
_App = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]
NOT_FOUND = rest_reply(NoSuchAddress("nothing stands at this address"))
"""The answer of every address that is none of these."""


def routes(
    pipeline: Pipeline,
    clock: Clock,
    *,
    public_url: str,
    contexts: Contexts | None = None,
    transfer: ContextTransfer | None = None,
    push_configs: PushConfigs | None = None,
    jwks: bytes | None = None,
    read_health: ReadHealth | None = None,
) -> list[BaseRoute]:
    """The routes of both HTTP bindings, the cards, the admin API, and the description of all of it."""
    started = datetime.fromtimestamp(clock.now() / 1000, UTC)
    cards = Cards(pipeline.agents, public_url, started)
    admin = admin_addresses(pipeline, contexts, transfer, push_configs, read_health)
    described = LateDocument(lambda _: _described(pipeline, public_url, admin, started), lambda: None)
    found: list[BaseRoute] = [
        _A2A(pipeline, cards),
        Route("/.well-known/agent-card.json", cards),
        *(Route(address.path, address) for address in admin),
        Route(OPENAPI_PATH, described),
    ]
    if jwks is not None:
        found.append(Route(JWKS_PATH, CachedDocument(jwks, started)))
    return found


def _described(pipeline: Pipeline, public_url: str, admin: list[AdminAddress], started: datetime) -> CachedDocument:
    """The OpenAPI description."""
    from gateway.http.openapi.document import document

    found = document(pipeline.agents, public_url, pipeline.limits.id_length, admin)
    return CachedDocument(msgspec.json.encode(found), started)


@dataclass(frozen=True, slots=True)
class _A2A(BaseRoute):
    """Everything under /a2a. The segments of the path find the binding, without a regular expression each."""

    pipeline: Pipeline
    cards: Cards

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope["path"]
        return (Match.FULL if path.startswith(_BELOW) or path == _BASE else Match.NONE), {}

    # Nor a coroutine of its own.
    def handle(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        return self._app(scope)(scope, receive, send)

    def _app(self, scope: Scope) -> _App:
        raw = scope.get("raw_path", b"")
        if b"%" in raw and b"%2f" in raw.lower():
            # A proxy may have authorised another path than the one that these segments would lead to.
            return NOT_FOUND
        place = _place(scope["path"])
        match place.kind:
            case "rpc" if place.agent is None and scope["method"] in READS:
                return self.cards.serve_list
            case "rpc":
                return partial(JsonRpc(self.pipeline).serve, place.agent)
            case "operation" if place.resource is not None:
                return partial(Rest(self.pipeline, place.resource, place.tenant).serve, place.agent)
            case "card":
                return partial(self.cards.serve, place.agent)
            case _:
                return NOT_FOUND


class _Place(msgspec.Struct, frozen=True):
    """What stands at a path. `agent` and `tenant` are those that the path names."""

    kind: Literal["rpc", "operation", "card", "nothing"]
    agent: str | None = None
    tenant: str | None = None
    resource: Resource | None = None


@lru_cache(maxsize=1024)
def _place(path: str) -> _Place:
    segments = path[len(_BELOW) :].split("/")
    # Behind `tasks/` stands an id, which is empty there, so that this is no list of tasks.
    operation = _operation(segments)
    if segments[-1] == "":
        segments.pop()
    if "" in segments:
        return _Place("nothing")
    match segments:
        case _ if operation is not None:
            named, found = operation
            agent, tenant = (*named, None, None)[:2]
            return _Place("operation", agent, tenant, found)
        case []:
            return _Place("rpc")
        case [agent]:
            return _Place("rpc", agent)
        case [*named, _, _] if segments[-2:] == _CARD and len(named) < 2:
            return _Place("card", named[0] if named else None)
        case _:
            return _Place("nothing")


def _operation(segments: list[str]) -> tuple[list[str], Resource] | None:
    """The prefix (agent and tenant), and the resource after it. The shortest prefix wins; no agent or tenant is called v1."""
    for length in range(min(_PREFIXES, len(segments))):
        if segments[length] == "v1":
            below = resource(segments[length + 1 :], V0_3) if length < _PREFIXES_OF_0_3 else None
            return None if below is None else (segments[:length], below)
        found = resource(segments[length:])
        if found is not None:
            return segments[:length], found
    return None
