"""Agent cards: built from settings, encoded once, served with validators for caches.

Source: A2A 1.0, sections 4.4 and 8. Law: cards are public; they say how a caller authenticates.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from gateway.a2a import model
from gateway.a2a.errors import MethodNotAllowed, NotFound
from gateway.a2a.model import AgentCard, Json
from gateway.a2a.tool_calls import Visibility, card_extensions
from gateway.a2a.wire import v1_0
from gateway.a2a.wire.card import card_json
from gateway.config.agents import CardConfig
from gateway.config.gateway import ProviderConfig
from gateway.config.settings import Settings
from gateway.core.agents import Agent, Agents
from gateway.http.reply import Headers, Reply, rest_reply

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
"""Schemes of which a client needs only one. Each scheme is written in two forms, in the form of A2A 1.0 and with `type`
as in version 0.3; a reader of one form ignores the other form."""

_MAX_AGE = 300
_READ_ONLY = rest_reply(MethodNotAllowed("this address is read only"), allowed=("GET", "HEAD"))


def build_card(
    name: str,
    card: CardConfig,
    public_url: str,
    *,
    input_modes: tuple[str, ...] = ("text/plain",),
    output_modes: tuple[str, ...] = ("text/plain",),
    provider: ProviderConfig | None = None,
    tool_calls: Visibility | None = None,
    approvals: bool = False,
    push_notifications: bool = False,
    api_keys: bool = False,
) -> AgentCard:
    """The card of the agent called `name`; without skills, the agent itself is its one skill.

    `public_url` is the gateway's. The modes are those of the adapter, for a `card` that names none.
    """
    address = agent_url(name, public_url)
    title = card.name or name
    description = card.description or f"The agent {title}"
    # Any caller may bring tools of its own.
    extensions = card_extensions(tool_calls or Visibility(), approvals=approvals, client_tools=True)
    only_skill = model.AgentSkill(id=name, name=title, description=description, tags=(name,))
    return AgentCard(
        name=title,
        description=description,
        supported_interfaces=tuple(
            model.AgentInterface(
                url=address, protocol_binding=binding, tenant=card.tenant, protocol_version=v1_0.VERSION
            )
            for binding in ("JSONRPC", "HTTP+JSON")
        ),
        provider=model.AgentProvider(**_given(provider)) if provider else None,
        version=card.version,
        documentation_url=card.documentation_url,
        capabilities=model.AgentCapabilities(
            streaming=True,
            push_notifications=push_notifications,
            extensions=(*extensions, *(model.AgentExtension(**_given(each)) for each in card.extensions)) or None,
            extended_agent_card=False,
        ),
        default_input_modes=card.input_modes or input_modes,
        default_output_modes=card.output_modes or output_modes,
        skills=tuple(model.AgentSkill(**_given(skill)) for skill in card.skills) or (only_skill,),
        icon_url=card.icon_url,
        security_schemes=API_KEY_SCHEMES if api_keys else None,
        security_requirements=tuple({"schemes": {scheme: {"list": []}}} for scheme in API_KEY_SCHEMES)
        if api_keys
        else None,
    )


def _given(section: Settings) -> dict[str, Any]:
    return {key: value for key, value in section.model_dump().items() if value not in (None, ())}


def agent_url(name: str, public_url: str) -> str:
    return f"{public_url.rstrip('/')}/a2a/{name}"


class Cards:
    """The encoded cards of all agents. As an ASGI application: the card of the agent that needs no name."""

    def __init__(self, agents: Agents, public_url: str, started: datetime) -> None:
        """`started` is the time since which these cards are valid."""
        self._agents = agents
        cards = {agent.name: card_json(agent.card) for agent in agents}
        self._cards = {name: CachedDocument(msgspec.json.encode(card), started) for name, card in cards.items()}
        addresses = {name: agent_url(name, public_url) for name in cards}
        listing = [
            {**card, "agent": name, "url": addresses[name], "cardUrl": f"{addresses[name]}/.well-known/agent-card.json"}
            for name, card in cards.items()
        ]
        self._list = CachedDocument(msgspec.json.encode({"agents": listing}), started)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(None, scope, receive, send)

    async def serve(self, agent: str | None, scope: Scope, receive: Receive, send: Send) -> None:
        """The card of the agent that the path names. With None, it is the card of the agent that a request without a
        name addresses."""
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
