"""Composition root: configuration -> plug-ins -> agents -> ASGI application -> a process that serves and drains."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from starlette.routing import Router
from starlette.types import ASGIApp

from gateway.a2a.limits import Limits
from gateway.a2a.model import AgentExtension, AgentProvider, AgentSkill
from gateway.a2a.redaction import JsonPath, json_path
from gateway.a2a.tool_calls import Showing, ShowingRule
from gateway.app.build import build_sources
from gateway.app.failpoints import armed
from gateway.app.push import Push, push_of
from gateway.app.reload import Generation, Succession
from gateway.config.agents import AgentConfig, ExtensionConfig, SkillConfig, ToolCallsConfig, refuse_window
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.core.agents import Agent, AgentPolicies, Agents
from gateway.core.ownership import contradiction
from gateway.core.tools.approvals import ApprovalRule
from gateway.engine.fanout import Fanout, StreamLimits
from gateway.engine.runtime import Pace
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.foundation.clock import Clock
from gateway.foundation.drain import Drain
from gateway.http.auth import Authenticator, KeyAuthentication, NoAuthentication
from gateway.http.cards import CardSettings, build_card
from gateway.http.front import BindingSettings
from gateway.http.health import Health, HostGuard, allowed_hosts
from gateway.http.routes import routes
from gateway.http.server import HttpServer, Signals, listen
from gateway.maintenance.backend_deletions import Deletions
from gateway.maintenance.expiry import QuestionExpiry
from gateway.maintenance.retention import Lifetimes, Retention
from gateway.operations.answer import PausedTurns
from gateway.operations.contexts import Contexts, ContextTransfer
from gateway.operations.quotas import QuotaLimits, Quotas
from gateway.operations.service import Operations
from gateway.ports.capabilities import BackendNaming
from gateway.ports.tools import ToolDeclaration
from gateway.scheduling.leases import LeaseTimes
from gateway.scheduling.runner import Runner

log = structlog.get_logger("gateway.app.application")

_YOUNG_OBJECTS = 50_000
"""So many more must be there than have gone before the garbage collector looks at them. A turn leaves it nothing, however it
ends; but what 200 turns hold is more and less by 10,000 objects all the time, and looking at those each time was 7 % of the
CPU."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway. `drain` set: streams end, new messages are refused, running turns go on.

    `reload` puts another configuration's agents and limits in force for new requests; the caller keeps `server` and
    `storage` as they are. It raises ValueError as `build_agents`, and then changes nothing.
    """

    app: ASGIApp
    runner: Runner
    drain: Drain
    reload: Callable[[GatewayConfig], None]


def build_agents(
    config: GatewayConfig, registry: Registry, sources: Mapping[str, AttachedSource] | None = None
) -> Agents:
    """`sources` has those that the agents use. Raises: ValueError for an agent whose settings cannot work, naming it."""
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
        refuse_window(agent.history, adapter.ownership.owner)
        direct = factory.direct_replies(agent.settings)
    except ValueError as error:
        raise ValueError(f"agents.{name}: {error}") from error
    card = agent.card
    input_modes = card.input_modes or factory.input_modes
    output_modes = card.output_modes or factory.output_modes
    provider = config.cards.provider
    settings = CardSettings(
        title=card.name or name,
        description=card.description or f"The agent {card.name or name}",
        input_modes=input_modes,
        output_modes=output_modes,
        version=card.version,
        skills=tuple(AgentSkill(**_given(skill)) for skill in card.skills),
        extensions=tuple(AgentExtension(**_given(extension)) for extension in card.extensions),
        provider=AgentProvider(url=provider.url, organization=provider.organization) if provider else None,
        documentation_url=card.documentation_url,
        icon_url=card.icon_url,
        tenant=card.tenant,
        api_keys=config.auth.api_keys.enabled,
        push_notifications=config.push.enabled,
        tool_calls=_showing(agent.tool_calls),
        approvals=bool(agent.approvals),
    )
    policies = _policies(agent, config, direct_replies=direct)
    wrong = contradiction(agent.history.owner, adapter.ownership, policies)
    if wrong is not None:
        raise ValueError(f"agents.{name}: {wrong}")
    return Agent(
        name=name,
        card=build_card(name, settings, config.server.public_url),
        adapter=adapter,
        tenant=card.tenant,
        input_modes=input_modes,
        output_modes=output_modes,
        policies=policies,
        toolset=SourceToolset([sources[each] for each in agent.tools]) if agent.tools else None,
        backend=adapter.backend if isinstance(adapter, BackendNaming) else None,
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


def _showing(config: ToolCallsConfig) -> Showing:
    rules = (
        ShowingRule(rule.principals, rule.exposure, None if rule.redact is None else _paths(rule.redact))
        for rule in config.rules
    )
    return Showing(config.when, config.channel, config.exposure, _paths(config.redact), config.max_result, tuple(rules))


def _paths(texts: tuple[str, ...]) -> tuple[JsonPath, ...]:
    return tuple(json_path(text) for text in texts)


def _given(section: SkillConfig | ExtensionConfig) -> dict[str, Any]:
    return {key: value for key, value in section.model_dump().items() if value not in (None, ())}


def _application(
    config: GatewayConfig,
    agents: Agents,
    operations: Operations,
    contexts: Contexts,
    transfer: ContextTransfer,
    health: Health,
    clock: Clock,
    auth: Authenticator,
    quotas: Quotas,
    push: Push | None,
) -> ASGIApp:
    limits = config.limits
    settings = BindingSettings(
        limits=Limits(
            parts=limits.parts,
            reference_ids=limits.reference_ids,
            extensions=limits.extensions,
            metadata=limits.metadata,
            id_length=limits.id_length,
        ),
        body=limits.request_body,
        json_depth=limits.json_depth,
        keepalive=limits.stream_keepalive,
        send_timeout=limits.stream_blocked,
    )
    public_url = config.server.public_url
    served = routes(
        operations,
        agents,
        auth,
        public_url=public_url,
        drain=operations.drain,
        settings=settings,
        clock=clock,
        contexts=contexts,
        transfer=transfer,
        quotas=quotas,
        pushes=push.pushes if push is not None else None,
        jwks=push.jwks if push is not None else None,
    )
    app = Router([*served, *health.routes()], redirect_slashes=False)
    return HostGuard(app, allowed_hosts(config.server.host, public_url))


@asynccontextmanager
async def running(
    config: GatewayConfig, registry: Registry, clock: Clock | None = None, pace: Pace | None = None
) -> AsyncIterator[Gateway]:
    """The gateway of this configuration, while the block runs. Raises: ValueError, LedgerUnavailable."""
    clock = clock or Clock()
    quotas = Quotas(clock, quota_limits(config))
    sources = build_sources(config, registry)
    agents = build_agents(config, registry, sources)
    drain = Drain()
    ledgers = registry.ledger(config.storage.url)
    failpoints = armed()
    async with ledgers.open(config.storage.url, config.storage.auto_migrate) as opened:
        ledger = opened if failpoints is None else failpoints.ledger(opened)
        fanout = Fanout(_stream_limits(config))
        runner = Runner(ledger, fanout, clock, LeaseTimes(config.storage.lease_timeout), pace)
        if failpoints is not None:
            runner.wrap_calls(failpoints.call)
        secret = await ledger.secret("page-token")
        push = await push_of(config.push, config.server.public_url, ledger, clock)
        pushes = push.pushes if push is not None else None
        operations = Operations(
            ledger, runner, fanout, clock, page_secret=secret, drain=drain, quotas=quotas, pushes=pushes
        )
        deletions = Deletions(ledger, lambda: front.agents, clock)
        contexts = Contexts(ledger, runner, fanout, clock, deletions.wake)
        transfer = ContextTransfer(ledger, clock)
        paused = PausedTurns(ledger, runner, fanout, clock)
        patience = QuestionExpiry(ledger, runner, paused, clock, lambda: front.agents)
        retention = Retention(ledger, contexts, clock, _lifetimes(config))
        health = Health(ledger, drain)
        keys = KeyAuthentication(ledger, clock)

        def generation(config: GatewayConfig, agents: Agents, sources: Mapping[str, AttachedSource]) -> Generation:
            auth = keys if config.auth.api_keys.enabled else NoAuthentication()
            app = _application(config, agents, operations, contexts, transfer, health, clock, auth, quotas, push)
            return Generation(app, agents, tuple(each.source for each in sources.values()))

        def reload(config: GatewayConfig) -> None:
            sources = build_sources(config, registry)
            front.succeed(generation(config, build_agents(config, registry, sources), sources))
            fanout.limit(_stream_limits(config))
            quotas.limit(quota_limits(config))
            retention.lifetimes = _lifetimes(config)

        async def left(agents: Agents) -> None:
            await deletions.left()
            await runner.unused(agents)

        front = Succession(generation(config, agents, sources), left)
        runner.use_agents(lambda name: front.agents.by_name.get(name, None))
        beside = [
            deletions.run(),
            retention.run(),
            patience.run(),
            keys.run(),
            *([push.run()] if push is not None else ()),
        ]
        async with front.lasting(), runner.running(), _beside(*beside):
            yield Gateway(front, runner, drain, reload)


@asynccontextmanager
async def _beside(*works: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """What is done while the block runs, and no longer."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def _lifetimes(config: GatewayConfig) -> Lifetimes:
    retention = config.retention
    return Lifetimes(retention.events, retention.tasks, retention.contexts_idle)


_STREAMS_OF_ONE = 100


def quota_limits(config: GatewayConfig) -> QuotaLimits:
    """Where all callers are one, the streams of one are not limited unless somebody says so."""
    limits, streams = config.limits, config.limits.streams_per_principal
    if streams is None:
        streams = 0 if config.auth.mode == "none" else _STREAMS_OF_ONE
    return QuotaLimits(limits.requests_per_minute, streams, limits.runs_per_principal)


def _stream_limits(config: GatewayConfig) -> StreamLimits:
    limits = config.limits
    return StreamLimits(limits.stream_buffer_events, limits.stream_buffer_bytes, limits.streams)


async def serve(
    config: GatewayConfig, on_ready: Callable[[str], None], reload: Callable[[], GatewayConfig] | None = None
) -> None:
    """Serves until SIGTERM or SIGINT, then drains. `on_ready` gets the base URL.

    `reload` reads the configuration again, at every SIGHUP and in a thread, and raises ConfigInvalid.

    Raises: OSError when the address cannot be had, ValueError and LedgerUnavailable as `running`.
    """
    bound = listen(config.server.host, config.server.port)
    with bound:
        served = config.model_copy(update={"server": config.server.bound_to(bound.getsockname()[1])})
        signals = Signals()
        async with running(served, Registry()) as gateway:
            server = HttpServer(gateway.app, bound, served.limits.stream_blocked)
            # What has been loaded by now stays: no collection looks at it again.
            gc.freeze()
            gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
            with signals.watched(reloads=reload is not None):
                async with asyncio.TaskGroup() as group:
                    serving = group.create_task(server.serve())
                    on_ready(served.server.public_url)
                    waits: list[Awaitable[object]] = [signals.first.wait(), serving]
                    if reload is not None:
                        waits.append(_reloading(gateway, config, served, signals.reload, reload))
                    await _first_of(*waits)
                    server.leave()
                    gateway.drain.set()
                    gateway.runner.retire()
                    await _drained(gateway, signals, config.server.shutdown_grace)
                    server.stop()


async def _reloading(
    gateway: Gateway,
    given: GatewayConfig,
    served: GatewayConfig,
    asked: asyncio.Event,
    read: Callable[[], GatewayConfig],
) -> None:
    """Never returns. A configuration that is wrong in any way changes nothing."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            wanted = await asyncio.to_thread(read)
            gateway.reload(wanted.model_copy(update={name: getattr(served, name) for name in _FIXED}))
        except ConfigInvalid as error:
            for problem in error.problems:
                log.error("reload.refused", problem=str(problem))
        except ValueError as error:
            log.error("reload.refused", problem=str(error))
        except Exception:  # a file that cannot even be judged must not end a gateway that works
            log.exception("reload.refused")
        else:
            for setting in _changed(given, wanted):
                log.warning("reload.needs-restart", setting=setting)
            log.info("reload.done", agents=list(wanted.agents))


_FIXED = ("server", "storage", "push")


def _changed(old: GatewayConfig, new: GatewayConfig) -> list[str]:
    """The settings that cannot change while the process runs, and should; not those that only follow from others."""
    changed = []
    for section in _FIXED:
        before, after = getattr(old, section), getattr(new, section)
        names = [name for name in type(before).model_fields if getattr(before, name) != getattr(after, name)]
        given = before.model_fields_set | after.model_fields_set
        changed += [f"{section}.{name}" for name in names if name in given]
    return changed


async def _drained(gateway: Gateway, signals: Signals, grace: float) -> None:
    """Waits until no turn runs or arrives, the grace is over or a second signal came."""
    try:
        async with asyncio.timeout(grace):
            await _first_of(signals.second.wait(), gateway.runner.drained())
    except TimeoutError:
        log.warning("drain.incomplete", grace=grace)


async def _first_of(*waits: Awaitable[object]) -> None:
    """Returns when one of them has ended; the others are cancelled, but for tasks, which belong to their group."""
    async with asyncio.TaskGroup() as group:
        tasks = [wait if isinstance(wait, asyncio.Task) else group.create_task(_wait(wait)) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task, wait in zip(tasks, waits, strict=True):
            if task is not wait:
                task.cancel()


async def _wait(wait: Awaitable[object]) -> None:
    await wait
