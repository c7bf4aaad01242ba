"""Agent cards: built from settings, encoded once, served with validators for caches.

Source: A2A 1.0, sections 4.4 and 8. Law: a card holds no empty string, array or object, because signature checkers drop them;
the scopes of security requirements are the exception. Cards are public: they say how a caller authenticates.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime

import msgspec
from starlette.types import Receive, Scope, Send

from gateway.a2a.errors import MethodNotAllowed, NotFound
from gateway.a2a.model import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    Json,
)
from gateway.a2a.tool_calls import Showing, announced
from gateway.a2a.wire import v1_0
from gateway.core.agents import Agent, Agents
from gateway.http.errors import rest_reply
from gateway.http.reply import Headers, Reply

API_KEY_SCHEMES: dict[str, Json] = {
    "bearer": {
        "httpAuthSecurityScheme": {"scheme": "Bearer", "description": "An API key of this gateway."},
        "type": "http",
        "scheme": "bearer",
    },
    "apiKey": {
        "apiKeySecurityScheme": {"location": "header", "name": "X-API-Key", "description": "The same key."},
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
    },
}
"""Either is enough. Each is written twice: as in A2A 1.0, and with `type` as in 0.3; readers of one ignore the other."""

_MAX_AGE = 300
_READ_ONLY = rest_reply(MethodNotAllowed("this address is read only"), allowed=("GET", "HEAD"))


@dataclass(frozen=True, slots=True)
class CardSettings:
    """The operator's description of an agent. Without skills, the agent itself is its one skill."""

    title: str
    description: str
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    version: str = "1.0.0"
    skills: tuple[AgentSkill, ...] = ()
    extensions: tuple[AgentExtension, ...] = ()
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    tenant: str | None = None
    api_keys: bool = False
    push_notifications: bool = False
    tool_calls: Showing = field(default_factory=Showing)
    approvals: bool = False


def build_card(name: str, settings: CardSettings, public_url: str) -> AgentCard:
    """The card of the agent called `name`; `public_url` is the gateway's, without a trailing slash."""
    address = agent_url(name, public_url)
    # Any caller may bring tools of its own.
    tool_calls = announced(settings.tool_calls, approvals=settings.approvals, client_tools=True)
    only_skill = AgentSkill(id=name, name=settings.title, description=settings.description, tags=(name,))
    return AgentCard(
        name=settings.title,
        description=settings.description,
        supported_interfaces=tuple(
            AgentInterface(url=address, protocol_binding=binding, tenant=settings.tenant, protocol_version=v1_0.VERSION)
            for binding in ("JSONRPC", "HTTP+JSON")
        ),
        provider=settings.provider,
        version=settings.version,
        documentation_url=settings.documentation_url,
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=settings.push_notifications,
            extensions=(*tool_calls, *settings.extensions) or None,
            extended_agent_card=False,
        ),
        default_input_modes=settings.input_modes,
        default_output_modes=settings.output_modes,
        skills=settings.skills or (only_skill,),
        icon_url=settings.icon_url,
        security_schemes=API_KEY_SCHEMES if settings.api_keys else None,
        security_requirements=tuple({"schemes": {name: {"list": []}}} for name in API_KEY_SCHEMES)
        if settings.api_keys
        else None,
    )


def agent_url(name: str, public_url: str) -> str:
    return f"{public_url.rstrip('/')}/a2a/{name}"


def without_empty(value: Json) -> Json:
    """The same JSON without members and elements that are '', [], {} or null, at any depth."""
    match value:
        case dict():
            members = ((key, without_empty(member)) for key, member in value.items())
            return {key: member for key, member in members if not _is_empty(member)}
        case list() | tuple():
            return [element for element in map(without_empty, value) if not _is_empty(element)]
        case _:
            return value


def _is_empty(value: Json) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


class Cards:
    """The encoded cards of all agents. As an ASGI application: the card of the agent that needs no name."""

    def __init__(self, agents: Agents, public_url: str, started: datetime) -> None:
        """`started` is the time since which these cards are valid."""
        self._agents = agents
        cards = {agent.name: _card_json(agent) for agent in agents}
        self._cards = {name: CachedDocument(msgspec.json.encode(card), started) for name, card in cards.items()}
        listing = [_listed(agent, cards[agent.name], public_url) for agent in agents]
        self._list = CachedDocument(msgspec.json.encode({"agents": listing}), started)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(None, scope, receive, send)

    async def serve(self, agent: str | None, scope: Scope, receive: Receive, send: Send) -> None:
        """The card of the agent that the path names; with None, of the one that needs no name."""
        try:
            found = self._agents.resolve(agent, None) if agent is not None else self._unnamed()
        except NotFound as error:
            await rest_reply(error)(scope, receive, send)
            return
        await self._cards[found.name](scope, receive, send)

    async def serve_list(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._list(scope, receive, send)

    def _unnamed(self) -> Agent:
        if self._agents.default is None:
            raise NotFound(f"no agent is the default here; GET /a2a lists them: {', '.join(self._agents.by_name)}")
        return self._agents.default


def _card_json(agent: Agent) -> dict[str, Json]:
    card: dict[str, Json] = without_empty(msgspec.to_builtins(agent.card))
    required = agent.card.security_requirements
    if required is not None:
        # An empty list means a scheme without scopes; without the lists nothing would be required.
        card["securityRequirements"] = required
        card["security"] = [
            {name: scopes["list"] for name, scopes in requirement["schemes"].items()} for requirement in required
        ]
    return card


def _listed(agent: Agent, card: dict[str, Json], public_url: str) -> dict[str, Json]:
    address = agent_url(agent.name, public_url)
    return {**card, "agent": agent.name, "url": address, "cardUrl": f"{address}/.well-known/agent-card.json"}


class CachedDocument:
    """An ASGI application: a document that stays the same until the process ends."""

    def __init__(self, body: bytes, started: datetime) -> None:
        modified = format_datetime(started.astimezone(UTC), usegmt=True).encode()
        etag = b'"%b"' % hashlib.sha256(body).hexdigest()[:32].encode()
        self._etag = etag
        headers: Headers = (
            (b"cache-control", b"public, max-age=%d" % _MAX_AGE),
            (b"etag", etag),
            (b"last-modified", modified),
        )
        self._whole = Reply(body, headers=headers)
        self._unchanged = Reply(b"", 304, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await _READ_ONLY(scope, receive, send)
        elif _matches(self._etag, (value for name, value in scope["headers"] if name == b"if-none-match")):
            await self._unchanged(scope, receive, send)
        else:
            await self._whole(scope, receive, send)


def _matches(etag: bytes, headers: Iterable[bytes]) -> bool:
    """Source: RFC 9110, section 13.1.2: a weak comparison with any of the list, and `*` is any."""
    listed: Sequence[bytes] = [tag.strip().removeprefix(b"W/") for value in headers for tag in value.split(b",")]
    return etag in listed or b"*" in listed
