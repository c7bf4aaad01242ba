"""Builds the agents, the sources of tools, the limits and the push notifications from a configuration. Law: building
contacts no backend; modules that are slow to import are imported with the first delivery."""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from ipaddress import ip_network
from typing import TYPE_CHECKING

import msgspec

from gateway.a2a.model import AgentCard
from gateway.a2a.redaction import JsonPath, json_path
from gateway.a2a.tool_calls import Visibility, VisibilityRule
from gateway.a2a.wire import v1_0, v1_1
from gateway.app.approvals import approval_rule
from gateway.config.agents import AgentConfig, ExtendedCardConfig, check_window
from gateway.config.gateway import GatewayConfig, PushConfig
from gateway.config.plugins import Registry
from gateway.config.storage import StorageCommon
from gateway.config.tools import ToolCallsConfig, ToolConfig
from gateway.core.agents import Agent, AgentPolicies, Agents
from gateway.core.described_card import AgentCards, DescribedCard
from gateway.core.ownership import contradiction
from gateway.engine.adapter_secrets import AdapterSecrets
from gateway.engine.changes import REST, Changes
from gateway.engine.fanout import StreamLimits
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.foundation.addresses import TargetRules
from gateway.foundation.clock import Clock
from gateway.foundation.resolver import Resolver
from gateway.http.cards import agent_skill, build_card, signed
from gateway.http.extended_cards import ExtendedCard, ExtendedSkill
from gateway.http.routes import JWKS_PATH
from gateway.ledger.port import Ledger
from gateway.maintenance.retention import Lifetimes
from gateway.operations.push_configs import PushConfigs
from gateway.operations.quotas import QuotaLimits
from gateway.ports.adapter import AnyAdapterFactory
from gateway.ports.capabilities import CanDescribe, Description, HasBackend, HasModel
from gateway.ports.observer import SILENT, Observer
from gateway.ports.tools import ToolDeclaration
from gateway.push.delivery import PushLimits
from gateway.push.dispatcher import Dispatcher
from gateway.push.secrets import SecretBox
from gateway.push.webhook import WebhookRequests

if TYPE_CHECKING:
    from gateway.foundation.signing_keys import SigningKey
    from gateway.http.card_signatures import CardSigner
    from gateway.push.sender import Sender

_STREAMS_PER_PRINCIPAL = 100

# --- tools


def build_sources(config: GatewayConfig, registry: Registry) -> dict[str, AttachedSource]:
    """Builds one source for each entry of `tools`; the agents share the sources.

    Raises: ValueError, which names the entry that cannot work.
    """
    return {name: build_source(name, tool, registry) for name, tool in config.tools.items()}


def build_source(name: str, tool: ToolConfig, registry: Registry) -> AttachedSource:
    """Builds the source of one entry. Raises: ValueError, as `build_sources` does."""
    try:
        source = registry.source(tool)
    except ValueError as error:
        raise ValueError(f"tools.{name}: {error}") from error
    return AttachedSource(name, tool.type, source, tool.allow, tool.timeout, tool.required, tool.max_result)


# --- agents


def build_agents(
    config: GatewayConfig, registry: Registry, sources: Mapping[str, AttachedSource] | None = None
) -> Agents:
    """Builds all agents. `sources` must hold every source that an agent uses.

    Raises: ValueError, which names the agent whose settings cannot work.
    """
    signer = card_signer(config)
    agents = tuple(
        build_agent(name, agent, config, registry, sources or {}, signer) for name, agent in config.agents.items()
    )
    default = next((name for name, agent in config.agents.items() if agent.default), None)
    return Agents(agents, default)


def build_agent(
    name: str,
    agent: AgentConfig,
    config: GatewayConfig,
    registry: Registry,
    sources: Mapping[str, AttachedSource],
    signer: "CardSigner | None" = None,
) -> Agent:
    """Builds one agent; `signer` signs its cards. Raises: ValueError, as `build_agents` does."""
    try:
        factory = registry.factory(agent.type)
        adapter = registry.adapter(agent)
        check_window(agent.history, adapter.ownership.owner)
        policies = _policies(agent, config, direct_replies=factory.direct_replies(agent.settings))
        wrong = contradiction(agent.history.owner, adapter.ownership, policies)
        if wrong is not None:
            raise ValueError(wrong)
        if agent.card.extended is not None and config.auth.mode == "none":
            raise ValueError(
                "card.extended is for callers who say who they are, but auth.mode is none, so nobody does: set it to any_of"
            )
        present = partial(_cards, name, agent, config, factory, signer)
        cards = present(None)
    except ValueError as error:
        raise ValueError(f"agents.{name}: {error}") from error
    described = DescribedCard(present, cards) if isinstance(adapter, CanDescribe) else None
    extended = None if cards.extended is None or described is None else described.extended
    return Agent(
        name=name,
        card=cards.public,
        adapter=adapter,
        tenant=agent.card.tenant,
        input_modes=cards.public.default_input_modes,
        output_modes=cards.public.default_output_modes,
        policies=policies,
        toolset=SourceToolset([sources[each] for each in agent.tools]) if agent.tools else None,
        backend=adapter.backend if isinstance(adapter, HasBackend) else None,
        model=adapter.model if isinstance(adapter, HasModel) else None,
        extended=extended or cards.extended,
        described=described,
    )


def _cards(
    name: str,
    agent: AgentConfig,
    config: GatewayConfig,
    factory: AnyAdapterFactory,
    signer: "CardSigner | None",
    description: Description | None,
) -> AgentCards:
    """The cards of an agent that its backend describes so. Raises: ValueError."""
    card = build_card(
        name,
        agent.card,
        config.server.public_url,
        input_modes=factory.input_modes,
        output_modes=factory.output_modes,
        provider=config.cards.provider,
        tool_calls=_showing(agent.tool_calls),
        approvals=any(rule.ask for rule in agent.approvals) or factory.asks(agent.settings),
        client_tools=factory.tools,
        push_notifications=config.push.enabled,
        api_keys=config.auth.api_keys.enabled,
        versions=(v1_0.VERSION, v1_1.VERSION) if config.protocol.draft_1_1 else (v1_0.VERSION,),
        grpc=config.server.grpc_address,
        described=description,
        documentation_url=config.cards.documentation_url,
    )
    public = signed(card, signer)
    extended = None if agent.card.extended is None else _extended(public, agent.card.extended, signer)
    return AgentCards(public, extended)


def _extended(public: AgentCard, config: ExtendedCardConfig, signer: "CardSigner | None") -> ExtendedCard:
    skills = tuple(ExtendedSkill(agent_skill(skill), skill.principals) for skill in config.skills)
    return ExtendedCard(public, skills, partial(signed, signer=signer))


def _policies(agent: AgentConfig, config: GatewayConfig, *, direct_replies: bool) -> AgentPolicies:
    """A policy with the name of a setting has its value."""
    names = {field.name for field in fields(AgentPolicies)}
    given = {
        name: getattr(section, name)
        for section in (config.limits, agent.history, agent)
        for name in names.intersection(type(section).model_fields)
    }
    given["approvals"] = tuple(map(approval_rule, agent.approvals))
    given["client_tools"] = tuple(
        ToolDeclaration(tool.name, tool.description, tool.parameters) for tool in agent.client_tools
    )
    given["tool_calls"] = _showing(agent.tool_calls)
    return AgentPolicies(
        client_context_ids_allowed=agent.client_context_ids == "allow",
        direct_replies=direct_replies,
        history_messages=agent.history.max_messages,
        history_tokens=agent.history.max_tokens,
        queued_turns=config.limits.queued_turns_per_context,
        **given,
    )


def _showing(config: ToolCallsConfig) -> Visibility:
    rules = (
        VisibilityRule(rule.principals, rule.exposure, None if rule.redact is None else _paths(rule.redact))
        for rule in config.rules
    )
    return Visibility(
        config.when, config.channel, config.exposure, _paths(config.redact), config.max_result, tuple(rules)
    )


def _paths(texts: tuple[str, ...]) -> tuple[JsonPath, ...]:
    return tuple(json_path(text) for text in texts)


# --- keys


def card_keys(config: GatewayConfig) -> "tuple[SigningKey, ...]":
    """The keys of the cards, of which the first signs."""
    if config.cards.signing is None:
        return ()
    from gateway.foundation.signing_keys import read_key

    return tuple(read_key(key.get_secret_value()) for key in config.cards.signing.keys)


def card_signer(config: GatewayConfig) -> "CardSigner | None":
    """None where cards are not signed."""
    keys = card_keys(config)
    if not keys:
        return None
    from gateway.http.card_signatures import CardSigner

    return CardSigner(keys[0], f"{config.server.public_url}{JWKS_PATH}")


def published_keys(config: GatewayConfig, push: "Push | None") -> bytes | None:
    """The public keys of signed cards and notifications; None where neither are signed."""
    keys = (*card_keys(config), *(() if push is None or push.key is None else (push.key,)))
    if not keys:
        return None
    from gateway.foundation.signing_keys import key_set

    return key_set(keys)


async def adapter_secrets(config: StorageCommon, ledger: Ledger) -> AdapterSecrets:
    """Raises: LedgerUnavailable."""
    key = config.encryption_key
    return AdapterSecrets(key.get_secret_value().encode() if key is not None else await ledger.secret("adapters"))


# --- limits


def quota_limits(config: GatewayConfig) -> QuotaLimits:
    """The limits for each principal. Without authentication all callers share one principal, so the number of its
    streams has no default limit."""
    limits, streams = config.limits, config.limits.streams_per_principal
    if streams is None:
        streams = 0 if config.auth.mode == "none" else _STREAMS_PER_PRINCIPAL
    return QuotaLimits(limits.requests_per_minute, streams, limits.runs_per_principal)


def stream_limits(config: GatewayConfig) -> StreamLimits:
    limits = config.limits
    return StreamLimits(limits.stream_buffer_events, limits.stream_buffer_bytes, limits.streams)


def lifetimes(config: GatewayConfig) -> Lifetimes:
    retention = config.retention
    return Lifetimes(retention.events, retention.tasks, retention.contexts_idle)


# --- push notifications


class Push(msgspec.Struct, frozen=True):
    """`key` signs notifications; None where they are not signed."""

    configs: PushConfigs
    dispatcher: Dispatcher
    resolver: Resolver
    key: "SigningKey | None"

    async def run(self, changes: Changes) -> None:
        """Never returns."""
        self.dispatcher.want = partial(changes.want, self.dispatcher)
        try:
            with changes.told(lambda _: self.dispatcher.hear(), rest=REST):
                await self.dispatcher.run()
        finally:
            self.resolver.close()


async def build_push(
    config: PushConfig, public_url: str, ledger: Ledger, clock: Clock, observer: Observer = SILENT
) -> Push | None:
    """None where push notifications are off. Raises: LedgerUnavailable."""
    if not config.enabled:
        return None
    key = config.encryption_key
    material = key.get_secret_value().encode() if key is not None else await ledger.secret("push")
    rules = TargetRules(config.allow_http, config.ports, tuple(map(ip_network, config.allow_private_networks)))
    resolver = Resolver(rules.permit)
    box = SecretBox(material)
    signer = None
    if config.signing:
        from gateway.push.signatures import Signer

        signer = Signer(material, public_url)

    def open_sender() -> "Sender":
        from gateway.push.sender import Sender

        return Sender(rules, resolver, config.timeout, clock, config.route)

    limits = PushLimits(config.timeout, config.max_attempts)
    dispatcher = Dispatcher(ledger, open_sender, WebhookRequests(box, signer), clock, limits, observer=observer)
    configs = PushConfigs(ledger, rules, resolver, box, clock, dispatcher.wake)
    return Push(configs, dispatcher, resolver, None if signer is None else signer.key)
