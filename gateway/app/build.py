"""From a configuration to agents, sources of tools, and the limits of the parts. Law: nothing is contacted."""

from collections.abc import Mapping

from gateway.a2a.redaction import JsonPath, json_path
from gateway.a2a.tool_calls import Visibility, VisibilityRule
from gateway.config.agents import AgentConfig, check_window
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.tools import ToolCallsConfig, ToolConfig
from gateway.core.agents import Agent, AgentPolicies, Agents
from gateway.core.ownership import contradiction
from gateway.core.tools.approvals import ApprovalRule
from gateway.engine.fanout import StreamLimits
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.http.cards import build_card
from gateway.maintenance.retention import Lifetimes
from gateway.operations.quotas import QuotaLimits
from gateway.ports.capabilities import HasBackend
from gateway.ports.tools import ToolDeclaration

_STREAMS_PER_PRINCIPAL = 100

# --- tools


def build_sources(config: GatewayConfig, registry: Registry) -> dict[str, AttachedSource]:
    """One for each entry of `tools`, shared by the agents. Raises: ValueError naming the one that cannot work."""
    return {name: build_source(name, tool, registry) for name, tool in config.tools.items()}


def build_source(name: str, tool: ToolConfig, registry: Registry) -> AttachedSource:
    """Raises: ValueError as `build_sources`."""
    try:
        source = registry.tool_source(tool.type, tool.settings)
    except ValueError as error:
        raise ValueError(f"tools.{name}: {error}") from error
    return AttachedSource(name, tool.type, source, tool.allow, tool.timeout, tool.required, tool.max_result)


# --- agents


def build_agents(
    config: GatewayConfig, registry: Registry, sources: Mapping[str, AttachedSource] | None = None
) -> Agents:
    """`sources` has the sources that the agents use. Raises: ValueError naming the agent whose settings cannot work."""
    agents = tuple(build_agent(name, agent, config, registry, sources or {}) for name, agent in config.agents.items())
    default = next((name for name, agent in config.agents.items() if agent.default), None)
    return Agents(agents, default)


def build_agent(
    name: str, agent: AgentConfig, config: GatewayConfig, registry: Registry, sources: Mapping[str, AttachedSource]
) -> Agent:
    """Raises: ValueError as `build_agents`."""
    try:
        factory = registry.factory(agent.type)
        adapter = factory.build(agent.settings)
        check_window(agent.history, adapter.ownership.owner)
        policies = _policies(agent, config, direct_replies=factory.direct_replies(agent.settings))
        wrong = contradiction(agent.history.owner, adapter.ownership, policies)
        if wrong is not None:
            raise ValueError(wrong)
    except ValueError as error:
        raise ValueError(f"agents.{name}: {error}") from error
    card = build_card(
        name,
        agent.card,
        config.server.public_url,
        input_modes=factory.input_modes,
        output_modes=factory.output_modes,
        provider=config.cards.provider,
        tool_calls=_showing(agent.tool_calls),
        approvals=bool(agent.approvals),
        push_notifications=config.push.enabled,
        api_keys=config.auth.api_keys.enabled,
    )
    return Agent(
        name=name,
        card=card,
        adapter=adapter,
        tenant=agent.card.tenant,
        input_modes=card.default_input_modes,
        output_modes=card.default_output_modes,
        policies=policies,
        toolset=SourceToolset([sources[each] for each in agent.tools]) if agent.tools else None,
        backend=adapter.backend if isinstance(adapter, HasBackend) else None,
    )


def _policies(agent: AgentConfig, config: GatewayConfig, *, direct_replies: bool) -> AgentPolicies:
    return AgentPolicies(
        client_context_ids_allowed=agent.client_context_ids == "allow",
        busy_context=agent.busy_context,
        idempotency=agent.idempotency,
        direct_replies=direct_replies,
        on_missing_handle=agent.on_missing_handle,
        on_lost_handle=agent.on_lost_handle,
        on_owner_conflict=agent.on_owner_conflict,
        shadow_history=agent.shadow_history,
        persistence=agent.history.persistence,
        history_messages=agent.history.max_messages,
        history_tokens=agent.history.max_tokens,
        uncited_sources=agent.history.uncited_sources,
        queued_turns=config.limits.queued_turns_per_context,
        turn_timeout=config.limits.turn_timeout,
        tool_rounds=config.limits.tool_rounds,
        parallel_tools=config.limits.parallel_tools,
        unknown_tool=agent.unknown_tool,
        round_limit_action=agent.round_limit_action,
        mixed_batch=agent.mixed_batch,
        new_task_while_waiting=agent.new_task_while_waiting,
        approval_timeout=agent.approval_timeout,
        standing_approvals=agent.standing_approvals,
        approvals=tuple(
            ApprovalRule(rule.tool, rule.ask, tuple(sorted(rule.arguments.items()))) for rule in agent.approvals
        ),
        client_tools=tuple(
            ToolDeclaration(tool.name, tool.description, tool.parameters) for tool in agent.client_tools
        ),
        tool_calls=_showing(agent.tool_calls),
        repeat_answer=agent.repeat_answer,
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


# --- limits


def quota_limits(config: GatewayConfig) -> QuotaLimits:
    """Without authentication all callers are one principal, whose streams are limited only by an explicit setting."""
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
