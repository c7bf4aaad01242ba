"""What the page says of an agent. Law: pure, and of the public card alone."""

from collections.abc import Iterable

import msgspec

from gateway.a2a.model import AgentCard
from gateway.a2a.wire.card import card_json
from gateway.core.agents import Agent
from gateway.core.described_card import passes
from gateway.http.cards import agent_url, card_url
from gateway.ui.foreign import one_line
from gateway.ui.front.snippets import Snippet, snippets

_NAME, _LINE, _TEXT = 120, 300, 1000
_SKILLS = 20
_MODES = 20


class Way(msgspec.Struct, frozen=True):
    """An address of the agent, and the versions of A2A that it speaks there."""

    transport: str
    address: str
    versions: tuple[str, ...]
    tenant: str


class Skill(msgspec.Struct, frozen=True):
    name: str
    description: str


class ShownAgent(msgspec.Struct, frozen=True):
    """`hidden_skills` is the number of those that only the card has."""

    name: str
    title: str
    description: str
    version: str
    address: str
    card: str
    documentation: str
    provider: str
    provider_url: str
    ways: tuple[Way, ...]
    skills: tuple[Skill, ...]
    hidden_skills: int
    takes: str
    gives: str
    abilities: tuple[str, ...]
    keyed: bool
    snippets: tuple[Snippet, ...]


def shown(agent: Agent, public_url: str) -> ShownAgent:
    """`public_url` is the gateway's."""
    card, address = agent.public_card, agent_url(agent.name, public_url)
    own, keyed = card_url(agent.name, public_url), bool(card.security_schemes)
    provider = card.provider
    return ShownAgent(
        name=agent.name,
        title=one_line(card.name, _NAME),
        description=one_line(card.description, _TEXT),
        version=one_line(card.version, _NAME),
        address=address,
        card=own,
        documentation=_elsewhere(card.documentation_url or "", public_url),
        provider="" if provider is None else one_line(provider.organization, _NAME),
        provider_url="" if provider is None else provider.url,
        ways=_ways(card),
        skills=tuple(
            Skill(one_line(each.name, _NAME), one_line(each.description, _LINE)) for each in card.skills[:_SKILLS]
        ),
        hidden_skills=max(0, len(card.skills) - _SKILLS),
        takes=_listed(card.default_input_modes),
        gives=_listed(card.default_output_modes),
        abilities=tuple(_abilities(card)),
        keyed=keyed,
        snippets=snippets(address, own, keyed=keyed, talks=passes("text/plain", card.default_input_modes)),
    )


def _ways(card: AgentCard) -> tuple[Way, ...]:
    """The addresses that the card names to clients of any version."""
    versions: dict[tuple[str, str], list[str]] = {}
    tenants: dict[tuple[str, str], str] = {}
    for each in card.supported_interfaces:
        place = (each.protocol_binding, each.url)
        versions.setdefault(place, []).append(each.protocol_version)
        tenants[place] = each.tenant or ""
    whole = card_json(card)
    for each in whole.get("additionalInterfaces", ()):
        versions.setdefault((each["transport"], each["url"]), []).append(whole["protocolVersion"].rpartition(".")[0])
    return tuple(Way(place[0], place[1], tuple(found), tenants.get(place, "")) for place, found in versions.items())


def _elsewhere(address: str, public_url: str) -> str:
    """The address, unless it is that of the page."""
    return "" if address.rstrip("/") == public_url.rstrip("/") else address


def _listed(modes: tuple[str, ...]) -> str:
    listed = ", ".join(one_line(mode, _NAME) for mode in modes[:_MODES])
    return listed if len(modes) <= _MODES else f"{listed}, …"


def _abilities(card: AgentCard) -> Iterable[str]:
    if card.capabilities.streaming:
        yield "streams"
    if card.capabilities.push_notifications:
        yield "push notifications"
    if card.capabilities.extended_agent_card:
        yield "an extended card for known callers"
