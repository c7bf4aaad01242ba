"""Where everything stands: cards, JSON-RPC at the base address of an agent, HTTP+JSON below it.

/.well-known/agent-card.json                 the card of the only or the default agent
/a2a                                         GET: all cards; POST: JSON-RPC to the agent in `tenant`, or the default one
/a2a/{agent}                                 POST: JSON-RPC; with and without a slash at the end
/a2a/{agent}/.well-known/agent-card.json     the card
/a2a/{agent}/message:send ...                HTTP+JSON; also /a2a/{agent}/{tenant}/... and /a2a/...
/admin/api/v1/contexts...                    whole contexts, beside A2A: `gateway.http.admin`
/admin/api/v1/push...                        what is not delivered: `gateway.http.admin`
/.well-known/jwks.json                       the public keys of signed notifications, where they are signed
"""

from datetime import UTC, datetime

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.a2a.errors import NotFound
from gateway.core.agents import Agents
from gateway.foundation.clock import Clock
from gateway.foundation.drain import Drain
from gateway.http.admin import admin_routes, push_routes
from gateway.http.auth import Authenticator
from gateway.http.cards import Cached, Cards
from gateway.http.front import BindingSettings, Front
from gateway.http.jsonrpc import JsonRpc
from gateway.http.replies import rest_reply
from gateway.http.rest import Resource, Rest, resource
from gateway.operations.api import A2AOperations
from gateway.operations.contexts import Contexts, ContextTransfer
from gateway.operations.push_configs import PushConfigs
from gateway.operations.quotas import Quotas

_CARD = [".well-known", "agent-card.json"]
_PREFIXES = 3  # /a2a, /a2a/{agent} and /a2a/{agent}/{tenant}: an operation's path begins behind one of them


def routes(
    operations: A2AOperations,
    agents: Agents,
    auth: Authenticator,
    *,
    public_url: str,
    drain: Drain,
    settings: BindingSettings | None = None,
    clock: Clock | None = None,
    contexts: Contexts | None = None,
    transfer: ContextTransfer | None = None,
    quotas: Quotas | None = None,
    pushes: PushConfigs | None = None,
    jwks: bytes | None = None,
) -> list[Route]:
    """The routes of both HTTP bindings, the cards, and the admin API. `drain`, once set, ends every stream."""
    clock = clock or Clock()
    front = Front(operations, agents, auth, settings or BindingSettings(), clock, drain, quotas or Quotas(clock))
    cards = Cards(agents, public_url, datetime.fromtimestamp(clock.now() / 1000, UTC))
    below = _Below(front, cards)
    admin = [] if contexts is None or transfer is None else admin_routes(front, contexts, transfer)
    if pushes is not None:
        admin += push_routes(front, pushes)
    if jwks is not None:
        keys = Cached(jwks, datetime.fromtimestamp(clock.now() / 1000, UTC))
        admin.append(Route("/.well-known/jwks.json", _Document(keys)))
    return [
        Route("/a2a/{rest:path}", below),
        Route("/a2a", below),
        Route("/.well-known/agent-card.json", _RootCard(cards)),
        *admin,
    ]


class _RootCard:
    def __init__(self, cards: Cards) -> None:
        self._cards = cards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._cards.serve(None, scope, receive, send)


class _Document:
    def __init__(self, document: Cached) -> None:
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._document.serve(scope, receive, send)


class _Below:
    """Everything under /a2a. One look at the segments of the path finds the binding, without a regular expression each."""

    def __init__(self, front: Front, cards: Cards) -> None:
        self._cards = cards
        self._jsonrpc = JsonRpc(front)
        self._rest = Rest(front)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        segments = scope["path_params"].get("rest", "").split("/")
        if segments[-1] == "":
            segments.pop()
        if "" in segments or b"%2f" in scope.get("raw_path", b"").lower():
            # A proxy in front may have judged another path than the one that these would lead to.
            await rest_reply(NotFound("nothing stands at this address"))(scope, receive, send)
            return
        operation = _operation(segments)
        match segments:
            case []:
                await self._base(scope, receive, send)
            case [agent] if operation is None:
                await self._jsonrpc.serve(agent, scope, receive, send)
            case [*named, _, _] if segments[-2:] == _CARD and len(named) < 2:
                await self._cards.serve(named[0] if named else None, scope, receive, send)
            case _ if operation is not None:
                named, found = operation
                agent = named[0] if named else None
                tenant = named[1] if len(named) > 1 else None
                await self._rest.serve(agent, tenant, found, scope, receive, send)
            case _:
                await rest_reply(NotFound("nothing stands at this address"))(scope, receive, send)

    async def _base(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            await self._cards.serve_list(scope, receive, send)
        else:
            await self._jsonrpc.serve(None, scope, receive, send)


def _operation(segments: list[str]) -> tuple[list[str], Resource] | None:
    """Agent and tenant in front, and what stands behind them. The shortest front wins."""
    for length in range(min(_PREFIXES, len(segments))):
        found = resource(segments[length:])
        if found is not None:
            return segments[:length], found
    return None
