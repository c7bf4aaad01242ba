"""Makes the parts of one gateway and connects them. Law: each part is made once; a reload replaces only the agents, the
sources of tools and the limits that a configuration describes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from gateway.app import build
from gateway.app.agent_health import read_health
from gateway.app.approvals import refuse_misfits
from gateway.app.audit import ITSELF, audit_problem, audited
from gateway.app.pages import Pages, pages_wanted
from gateway.app.reload import LoadedConfig, ReloadableApp
from gateway.app.tracing import traced
from gateway.config.fixed import digest
from gateway.config.gateway import GatewayConfig, LogsConfig, MetricsConfig
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.core.agents import Agent, Agents
from gateway.engine.adapter_secrets import AdapterSecrets
from gateway.engine.fanout import Fanout
from gateway.engine.runtime import Pace
from gateway.engine.tool_sources import AttachedSource
from gateway.foundation.access_log import AccessLog
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import Drain
from gateway.http.auth import KeyAuthentication, KeyHolders, NoAuthentication
from gateway.http.card_refresh import CardRefresh, keep_descriptions
from gateway.http.health import Health
from gateway.http.host_guard import HostGuard, allowed_hosts
from gateway.http.metrics import MetricsPage, MetricsPort
from gateway.http.pipeline import Pipeline
from gateway.http.request_log import RequestLog
from gateway.http.routes import NOT_FOUND, routes
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.port import Ledger
from gateway.maintenance.backend_deletions import Deletions
from gateway.maintenance.backlog_watch import BacklogWatch
from gateway.maintenance.duties import Duties
from gateway.maintenance.expiry import QuestionExpiry
from gateway.maintenance.retention import Retention
from gateway.maintenance.withdrawals import Withdrawals
from gateway.operations.contexts import Contexts, ContextTransfer
from gateway.operations.paused_turns import PausedTurns
from gateway.operations.quotas import Quotas
from gateway.operations.service import Operations
from gateway.operations.shared_quotas import SharedQuotas
from gateway.ports.observer import SILENT, AuditEntry, Observer, Observers, RequestLine, Target
from gateway.scheduling.leases import LeaseTimes
from gateway.scheduling.runner import Runner
from gateway.telemetry.access_lines import AccessLines
from gateway.telemetry.loop_lag import watch_loop
from gateway.ui.front.route import FrontPage

if TYPE_CHECKING:
    from gateway.grpc.server import GrpcServer
    from gateway.telemetry.audit import AuditLog
    from gateway.telemetry.prometheus import Metrics

Sources = Mapping[str, AttachedSource]

"""What the process does without being asked."""


class Gateway:
    """All parts of a gateway. `app` answers requests. When `drain` is set, streams end and new messages are refused,
    but running turns continue."""

    def __init__(
        self,
        config: GatewayConfig,
        registry: Registry,
        agents: Agents,
        sources: Sources,
        ledger: Ledger,
        clock: Clock,
        secrets: AdapterSecrets,
        pace: Pace | None,
        page_secret: bytes,
        session_secret: bytes,
        push: build.Push | None,
        observer: Observer = SILENT,
        metrics: "Metrics | None" = None,
        audit: "AuditLog | None" = None,
    ) -> None:
        self._registry = registry
        self._ledger = ledger
        self._clock = clock
        self._session_secret = session_secret
        self._push = push
        self._observer, self._metrics, self._audit = observer, metrics, audit
        ledger.observe(observer)
        self.drain = Drain()
        self._quotas = Quotas(clock, build.quota_limits(config))
        self._fanout = fanout = Fanout(build.stream_limits(config))
        times = LeaseTimes(config.storage.lease_timeout)
        self.runner = runner = Runner(
            ledger,
            fanout,
            clock,
            secrets,
            times,
            pace,
            observer,
        )
        self._operations = Operations(
            ledger,
            runner,
            fanout,
            clock,
            page_secret=page_secret,
            drain=self.drain,
            quotas=self._quotas,
            push_configs=push.configs if push is not None else None,
        )
        self.shared_quotas = SharedQuotas(ledger, clock, runner.runtime.holder, times, self._quotas)
        self._duties = duties = Duties(ledger, clock, runner.runtime.holder)
        self._deletions = Deletions(ledger, self._agents, clock, duties)
        self._withdrawals = Withdrawals(ledger, self._agents, clock, duties)
        self._contexts = Contexts(ledger, runner, fanout, clock, self.drain)
        self._transfer = ContextTransfer(ledger, clock)
        paused = PausedTurns(ledger, runner, fanout, clock)
        self._expiry = QuestionExpiry(ledger, runner, paused, clock, duties, self._agents)
        self._refresh = CardRefresh(self._agents, clock, config.cards.refresh)
        self._retention = Retention(ledger, self._contexts, clock, duties, build.lifetimes(config))
        self._health = Health(ledger, self.drain)
        self._keys = KeyAuthentication(ledger, clock, observer)
        self.app = ReloadableApp(self._loaded(config, agents, sources), self._wait_unused)
        runner.find_agent = self._agent
        self._backlog = BacklogWatch(ledger)
        self._backlog.shown_to(observer)
        observer.watch("leases_held", "Conversations of which this process has the lease.", runner.leases)
        observer.watch("turns_open", "Turns that wait or run.", runner.open_turns, "agent", "state")
        observer.watch("streams_open", "Open streams.", lambda: [((), fanout.streams)])
        observer.watch("draining", "1 while running turns end and no new ones are taken.", self._draining)

    def refused_reload(self) -> None:
        """A configuration that is not taken has its line in the audit log."""
        if self._audit is not None:
            self._audit.audited(AuditEntry("config.reloaded", ITSELF, outcome="config_invalid"))

    async def reload(self, config: GatewayConfig) -> None:
        """Applies the agents and limits of `config` to new requests; `server`, `storage`, `push` and `logs` do not
        change.

        Raises: ValueError as `build_agents` does, ConfigInvalid as `refuse_misfits`; in these cases nothing has changed.
        """
        sources = build.build_sources(config, self._registry)
        async with _closed_unless_used(sources) as used:
            agents = build.build_agents(config, self._registry, sources)
            await refuse_misfits(config, sources)
            keep_descriptions(self.app.agents, agents, self._clock.now())
            self.app.replace(self._loaded(config, agents, sources))
            used()
        if self._audit is not None:
            self._audit.reopen()
            self._audit.audited(AuditEntry("config.reloaded", ITSELF, Target(config=digest(config))))
        self._fanout.limits = build.stream_limits(config)
        self._quotas.limit(build.quota_limits(config))
        self._retention.lifetimes = build.lifetimes(config)
        self._refresh.interval = config.cards.refresh
        self._refresh.wake()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with (
            self.app.open(),
            self.runner.running(),
            self._duties.held(),
            self.shared_quotas.counting(),
            asyncio.TaskGroup() as group,
        ):
            jobs = [self._deletions.run(), self._withdrawals.run(), self._retention.run(), self._expiry.run()]
            jobs += [self._keys.run(), self._refresh.run(), self.shared_quotas.run()]
            if self._metrics is not None:
                jobs += [watch_loop(self._metrics, self._clock.monotonic), self._backlog.run()]
            if self._audit is not None:
                jobs.append(self._audit.run())
            if self._push is not None:
                jobs.append(self._push.run(self.runner.runtime.changes))
            tasks = [group.create_task(job) for job in jobs]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def serving_grpc(self, server: "GrpcServer") -> AbstractAsyncContextManager[None]:
        """The server answers calls while the block runs."""
        return server.serving(self.app.pipelines, self._health.ready, self.drain, self._clock, self._observer)

    def log_refused(self, status: int, peer: str | None) -> None:
        """The line of a request that never reached `app`."""
        self._observer.request_ended(RequestLine(status=status, peer=peer))

    @property
    def metrics_port(self) -> ASGIApp | None:
        """The application of a port for metrics alone."""
        return None if self._metrics is None else MetricsPort(self._metrics.page)

    def _draining(self) -> list[tuple[tuple[str, ...], float]]:
        return [((), float(self.drain.is_set()))]

    def _agents(self) -> Agents:
        """The agents of the current configuration."""
        return self.app.agents

    def _agent(self, name: str) -> Agent | None:
        return self.app.agents.by_name.get(name)

    def _loaded(self, config: GatewayConfig, agents: Agents, sources: Sources) -> LoadedConfig:
        push, public_url = self._push, config.server.public_url
        auth = self._keys if config.auth.api_keys.enabled else NoAuthentication()
        serve_by = partial(
            Pipeline,
            self._operations,
            agents,
            limits=config.limits,
            clock=self._clock,
            drain=self.drain,
            quotas=self._quotas,
            draft_1_1=config.protocol.draft_1_1,
            observer=self._observer,
            continues_traces=config.tracing.parent == "continue",
        )
        pipeline = serve_by(auth=auth)
        served = routes(
            pipeline,
            self._clock,
            public_url=public_url,
            contexts=self._contexts,
            transfer=self._transfer,
            push_configs=push.configs if push is not None else None,
            jwks=build.published_keys(config, push),
            read_health=partial(read_health, self._ledger, self.runner.runtime, agents),
        )
        if self._metrics is not None and config.metrics.path is not None:
            served.append(Route(config.metrics.path, MetricsPage(self._metrics.page, pipeline)))
        served.append(Route("/", FrontPage(agents, public_url, datetime.fromtimestamp(self._clock.now() / 1000, UTC))))
        if pages_wanted(config):
            served.append(Pages(partial(self._load_pages, config, pipeline, auth, serve_by)))
        router = Router([*served, *self._health.routes()], redirect_slashes=False, default=NOT_FOUND)
        app: ASGIApp = HostGuard(router.app, allowed_hosts(config.server.host, public_url))
        if self._observer is not SILENT:
            app = RequestLog(app, self._observer, self._clock)
        return LoadedConfig(app, agents, pipeline, tuple(each.source for each in sources.values()))

    async def _load_pages(
        self, config: GatewayConfig, pipeline: Pipeline, auth: KeyHolders, serve_by: Callable[..., Pipeline]
    ) -> ASGIApp:
        def load() -> ASGIApp:
            from gateway.recording.recordings import Recordings
            from gateway.ui.parts import Parts
            from gateway.ui.site import Site

            folder = self._registry.recordings
            parts = Parts(
                ledger=self._ledger,
                agents=pipeline.agents,
                limits=pipeline.limits,
                clock=self._clock,
                drain=self.drain,
                observer=self._observer,
                public_url=config.server.public_url,
                auth=auth,
                asks_for_keys=config.auth.mode != "none",
                serve_by=lambda other: serve_by(auth=other),
                operations=self._operations,
                runner=self.runner,
                contexts=self._contexts,
                transfer=self._transfer,
                push_configs=None if self._push is None else self._push.configs,
                recordings=None if folder is None else Recordings(folder),
            )
            return Site(parts, self._session_secret)

        return await asyncio.to_thread(load)

    async def _wait_unused(self, agents: Agents) -> None:
        """Returns when no job at a backend, question for a description or turn uses these agents, which a reload has
        replaced."""
        await self._deletions.wait_current()
        await self._withdrawals.wait_current()
        await self._refresh.wait_current()
        await self.runner.unused(agents)


@asynccontextmanager
async def running(
    config: GatewayConfig,
    registry: Registry,
    clock: Clock | None = None,
    pace: Pace | None = None,
    on_built: Callable[[], None] = lambda: None,
) -> AsyncIterator[Gateway]:
    """Runs the gateway of this configuration while the block runs. Its time is that of its ledger, unless a `clock` is given.
    `on_built` is called when all agents and sources are made, and nothing is asked or opened yet.

    Raises: ValueError as `build_agents` does, ConfigInvalid as `refuse_misfits` and where the file of the audit log cannot be
    opened, LedgerUnavailable.
    """
    problem = audit_problem(config)
    if problem is not None:
        raise ConfigInvalid([problem])
    machine = clock or Clock()
    sources = build.build_sources(config, registry)
    async with _closed_unless_used(sources) as used, traced(config) as traces:
        agents = build.build_agents(config, registry, sources)
        on_built()
        await refuse_misfits(config, sources)
        ledgers = registry.ledger(config.storage.url)
        async with ledgers.open(config.storage.settings, config.storage.auto_migrate) as ledger:
            clock = clock or replace(machine, now=ledger.now)
            # That of sessions too: a page that is opened while the storage is away can say so then.
            page_secret, session_secret = await asyncio.gather(ledger.secret("page-token"), ledger.secret("ui-session"))
            secrets = await build.adapter_secrets(config.storage, ledger)
            metrics = _metrics(config.metrics)
            with _access_log(config.logs, machine) as access, audited(config.audit, machine) as audit:
                observer = _observer(config.logs, access, metrics, audit, traces)
                push = await build.build_push(config.push, config.server.public_url, ledger, clock, observer)
                gateway = Gateway(
                    config,
                    registry,
                    agents,
                    sources,
                    ledger,
                    clock,
                    secrets,
                    pace,
                    page_secret,
                    session_secret,
                    push,
                    observer,
                    metrics,
                    audit,
                )
                used()
                with _ledger_errors():
                    async with gateway.running():
                        yield gateway


@contextmanager
def _ledger_errors() -> Iterator[None]:
    """The error of a ledger that goes away during the start, in place of the groups of the tasks that it has ended."""
    try:
        yield
    except BaseExceptionGroup as ended:
        unavailable, others = ended.split(LedgerUnavailable)
        if unavailable is None or others is not None:
            raise
        error: BaseException = unavailable
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


@contextmanager
def _access_log(config: LogsConfig, clock: Clock) -> Iterator[AccessLog | None]:
    """None where no line of it would be written."""
    if config.level in ("debug", "info") and (config.requests or config.turns):
        with AccessLog(now=clock.now) as access:
            yield access
    else:
        yield None


def _metrics(config: MetricsConfig) -> "Metrics | None":
    """None where nobody could read them; then nothing of them is imported."""
    if config.path is None and config.listen is None:
        return None
    from gateway.telemetry.prometheus import Metrics

    return Metrics()


def _observer(
    config: LogsConfig,
    access: AccessLog | None,
    metrics: "Metrics | None",
    audit: "AuditLog | None",
    traces: Observer | None,
) -> Observer:
    heard: list[Observer] = [] if audit is None else [audit]
    if access is not None:
        heard.append(AccessLines(access, requests=config.requests, turns=config.turns))
    if metrics is not None:
        heard.append(metrics)
    if traces is not None:
        heard.append(traces)
    if len(heard) < 2:
        return heard[0] if heard else SILENT
    return Observers(*heard)


@asynccontextmanager
async def _closed_unless_used(sources: Sources) -> AsyncIterator[Callable[[], object]]:
    """Closes the sources where the block does not call the function that it gets, which says that others close them."""
    async with AsyncExitStack() as stack:
        for attached in sources.values():
            stack.push_async_callback(attached.source.aclose)
        yield stack.pop_all
