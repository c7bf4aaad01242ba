"""Agent cards: built from settings, encoded once, served with validators for caches.

Source: A2A 1.0, sections 4.4 and 8. Law: cards are public; they say how a caller authenticates.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from gateway.a2a import model
from gateway.a2a.errors import NotFound
from gateway.a2a.model import AgentCard, Json
from gateway.a2a.tool_calls import Visibility, card_extensions
from gateway.a2a.wire import v1_0
from gateway.a2a.wire.card import card_json, compact
from gateway.config.agents import CardConfig, SkillConfig
from gateway.config.gateway import ProviderConfig
from gateway.config.settings import Settings
from gateway.core.agents import Agent, Agents
from gateway.core.described_card import usable
from gateway.http.documents import CachedDocument
from gateway.http.reply import rest_reply
from gateway.ports.capabilities import Description

if TYPE_CHECKING:
    from gateway.http.card_signatures import CardSigner

API_KEY_SCHEMES: dict[str, Json] = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer", "description": "An API key of this gateway."}},
    "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key", "description": "The same key."}},
}
"""Schemes of which a client needs only one."""


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
    client_tools: bool = True,
    push_notifications: bool = False,
    api_keys: bool = False,
    versions: Sequence[str] = (v1_0.VERSION,),
    grpc: str | None = None,
    described: Description | None = None,
    documentation_url: str | None = None,
) -> AgentCard:
    """The card of the agent called `name`; without skills, the agent itself is its one skill.

    `described` is what the backend says of the agent, for what `card` does not say. `public_url` is the gateway's. The modes
    are those of the adapter, for a card and a description that name none. `client_tools` says that
    callers may bring tools of their own. `versions` are those of A2A that each interface over HTTP speaks, the preferred one
    first. `grpc` is the address of the gateway's gRPC port, if it has one. `documentation_url` is for an agent of which neither
    names its own.
    """
    address = agent_url(name, public_url)
    told = Description() if described is None else usable(described, input_modes, output_modes)
    title = card.name or told.name or name
    description = card.description or told.description or f"The agent {title}"
    version = card.version if told.version is None or "version" in card.model_fields_set else told.version
    extensions = card_extensions(tool_calls or Visibility(), approvals=approvals, client_tools=client_tools)
    over_http = (
        model.AgentInterface(url=address, protocol_binding=binding, tenant=card.tenant, protocol_version=version)
        for version in versions
        for binding in ("JSONRPC", "HTTP+JSON")
    )
    # One port serves all agents: the tenant says which one is meant.
    over_grpc = (
        model.AgentInterface(
            url=url, protocol_binding="GRPC", tenant=card.tenant or name, protocol_version=v1_0.VERSION
        )
        for url in (() if grpc is None else (grpc,))
    )
    only_skill = model.AgentSkill(id=name, name=title, description=description, tags=(name,))
    return AgentCard(
        name=title,
        description=description,
        supported_interfaces=(*over_http, *over_grpc),
        provider=model.AgentProvider(**_given(provider)) if provider else None,
        version=version,
        documentation_url=card.documentation_url or told.documentation_url or documentation_url,
        capabilities=model.AgentCapabilities(
            streaming=True,
            push_notifications=push_notifications,
            extensions=(*extensions, *(model.AgentExtension(**_given(each)) for each in card.extensions)) or None,
            extended_agent_card=card.extended is not None,
        ),
        default_input_modes=card.input_modes or told.input_modes or input_modes,
        default_output_modes=card.output_modes or told.output_modes or output_modes,
        skills=tuple(map(agent_skill, card.skills)) or told.skills or (only_skill,),
        icon_url=card.icon_url or told.icon_url,
        security_schemes=API_KEY_SCHEMES if api_keys else None,
        security_requirements=tuple({"schemes": {scheme: {"list": []}}} for scheme in API_KEY_SCHEMES)
        if api_keys
        else None,
    )


def _given(section: Settings) -> dict[str, Any]:
    return {key: value for key, value in section.model_dump().items() if value not in (None, ())}


def agent_skill(config: SkillConfig) -> model.AgentSkill:
    given = _given(config)
    return model.AgentSkill(**{name: given[name] for name in SkillConfig.model_fields if name in given})


def signed(card: AgentCard, signer: "CardSigner | None") -> AgentCard:
    """The card with its signatures, where cards are signed: one for clients that know only the members of A2A 1.0, and where
    there are others, one for clients that take the document as it is. Raises: ValueError, as `CardSigner.sign` does."""
    if signer is None:
        return card
    known, served = compact(card), card_json(card)
    return replace(card, signatures=tuple(map(signer.sign, (known,) if known == served else (known, served))))


def agent_url(name: str, public_url: str) -> str:
    return f"{public_url.rstrip('/')}/a2a/{name}"


def card_url(name: str, public_url: str) -> str:
    return f"{agent_url(name, public_url)}/.well-known/agent-card.json"


def latest_change(agents: Iterable[Agent], started: datetime) -> datetime:
    """Since when the cards of these agents say what they say. `started` is the time since which those of the configuration are
    valid."""
    told = (agent.described.since for agent in agents if agent.described is not None)
    return max((started, *(datetime.fromtimestamp(each / 1000, UTC) for each in told if each is not None)))


class Cards:
    """The encoded cards of all agents, each encoded again when its backend describes it otherwise. As an ASGI application: the
    card of the agent that needs no name."""

    def __init__(self, agents: Agents, public_url: str, started: datetime) -> None:
        """`started` is the time since which the cards of the configuration are valid."""
        self._agents = agents
        self._started = started
        self._public_url = public_url
        self._cards: dict[str, _Encoded] = {agent.name: self._encoded(agent) for agent in agents}
        self._list = self._listing()

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
        self._update()
        await self._cards[found.name].document(scope, receive, send)

    async def serve_list(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._update()
        await self._list(scope, receive, send)

    def _unnamed(self) -> Agent:
        if self._agents.default is None:
            raise NotFound(f"no agent is the default here; GET /a2a lists them: {', '.join(self._agents.by_name)}")
        return self._agents.default

    def _update(self) -> None:
        changed = [agent for agent in self._agents if agent.public_card is not self._cards[agent.name].card]
        if changed:
            self._cards |= {agent.name: self._encoded(agent) for agent in changed}
            self._list = self._listing()

    def _encoded(self, agent: Agent) -> "_Encoded":
        card = card_json(agent.public_card)
        since = latest_change((agent,), self._started)
        return _Encoded(agent.public_card, card, _cached(card, [card], since))

    def _listing(self) -> CachedDocument:
        listing = [
            {
                **each.json,
                "agent": name,
                "url": agent_url(name, self._public_url),
                "cardUrl": card_url(name, self._public_url),
            }
            for name, each in self._cards.items()
        ]
        return _cached({"agents": listing}, listing, latest_change(self._agents, self._started))


class _Encoded(msgspec.Struct, frozen=True):
    """A card in the form in which it is served."""

    card: AgentCard
    json: dict[str, Json]
    document: CachedDocument


def _cached(document: Json, cards: Sequence[dict[str, Json]], started: datetime) -> CachedDocument:
    """`cards` are those in the document."""
    return CachedDocument(msgspec.json.encode(document), started, alike=what_is_said(cards))


def what_is_said(cards: Sequence[dict[str, Json]]) -> bytes | None:
    """Signed cards without their signatures, None for others. A signature is another one each time, and says nothing that its
    card does not say: two processes that serve the same cards name them alike."""
    if not any("signatures" in card for card in cards):
        return None
    return msgspec.json.encode(
        [{**card, "signatures": [one["protected"] for one in card.get("signatures", ())]} for card in cards]
    )
