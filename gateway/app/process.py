"""The process that serves a gateway: start, reload on SIGHUP, drain on SIGTERM or SIGINT. Law: a drain ends streams and refuses
messages at once; running turns have until the end of the grace; whoever still waits for one then hears so."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from socket import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog
from pydantic import BaseModel

from gateway.app.application import Gateway, running
from gateway.app.grpc_port import open_grpc
from gateway.config.fixed import FIXED
from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid, not_listening
from gateway.config.storage import StorageConfig
from gateway.engine.runtime import Pace
from gateway.foundation.tasks import Wait, first_of
from gateway.http.server import HttpServer, Signals, listen

if TYPE_CHECKING:
    from gateway.app.workers.orders import Orders

log = structlog.get_logger("gateway.app.process")

_GC_THRESHOLD = 50_000
"""Net new objects before the youngest generation is collected. A turn leaves no reference cycles, however it ends; but 200
running turns allocate and free about 10,000 objects all the time, and looking at them each time took 7 % of the CPU."""


async def serve(
    config: GatewayConfig,
    on_ready: Callable[[str], None],
    reload: Callable[[], GatewayConfig] | None = None,
    orders: "Orders | None" = None,
    registry: Registry | None = None,
    pace: Pace | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then drains. `on_ready` gets the URL under which this machine reaches
    the gateway.

    `reload` reads the configuration again, at every SIGHUP and in a thread; it raises ConfigInvalid. With `orders` this process
    is one of several on the ports that they name. `registry` makes the agents and the sources of tools, `pace` is that of their
    retries.

    Raises: OSError when the address cannot be bound, ConfigInvalid as `open_grpc`, `listen_for_metrics` and `running`,
    ValueError and LedgerUnavailable as `running`.
    """
    at = config if orders is None else on_ports(config, *orders.ports)
    shared = orders is not None
    with ExitStack() as sockets:
        bound = sockets.enter_context(listen(at.server.host, at.server.port, shared=shared))
        grpc = open_grpc(at, shared=shared)
        if grpc is not None:
            sockets.enter_context(closing(grpc))
        measured = listen_for_metrics(config, sockets, 0 if orders is None else orders.number - 1)
        served = on_ports(at, bound.getsockname()[1], None if grpc is None else grpc.port)
        signals = orders or Signals()
        async with (
            running(served, registry or Registry(), pace=pace, on_built=partial(_log_built, served)) as gateway,
            nullcontext() if grpc is None else gateway.serving_grpc(grpc),
        ):
            server = HttpServer(gateway.app, bound, served.limits.stream_blocked, gateway.log_refused)
            metrics = None
            if gateway.metrics_port is not None and measured is not None:
                metrics = HttpServer(gateway.metrics_port, measured)
                log.info("start.metrics", port=measured.getsockname()[1])
            # The objects that exist at this point stay alive, so no later collection examines them.
            gc.freeze()
            gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
            gc.enable()
            if grpc is not None:
                log.info("start.grpc", host=config.server.host, port=grpc.port)
            with signals.watched(reloads=reload is not None):
                async with asyncio.TaskGroup() as group:
                    serving = group.create_task(server.serve())
                    if metrics is not None:
                        group.create_task(metrics.serve())
                    server.listen()
                    on_ready(served.server.local_url)
                    waits: list[Wait] = [signals.first.wait(), serving]
                    if reload is not None:
                        waits.append(_reload_on_signal(gateway, config, served, signals.reload, reload))
                    await first_of(*waits)
                    log.info("drain.begun", grace=config.server.shutdown_grace)
                    server.retire()
                    gateway.drain.set()
                    gateway.runner.retired = True
                    if grpc is not None:
                        group.create_task(grpc.retire(config.server.shutdown_grace))
                    await _wait_drained(gateway, signals, config.server.shutdown_grace)
                    gateway.drain.over.set()
                    server.stop()
                    if metrics is not None:
                        metrics.stop()


def listen_for_metrics(config: GatewayConfig, sockets: ExitStack, worker: int) -> socket | None:
    """The port of a worker, counted from 0; None where metrics have no port of their own. Raises: ConfigInvalid where it cannot
    be bound."""
    if config.metrics.listen is None:
        return None
    at = urlsplit(f"//{config.metrics.listen}")
    host, port = at.hostname or "", (at.port or 0) + worker
    try:
        return sockets.enter_context(listen(host, port))
    except OSError as error:
        raise not_listening("metrics.listen", host, port, error, "address") from error


def on_ports(config: GatewayConfig, port: int, grpc_port: int | None) -> GatewayConfig:
    """The configuration with the ports that are served."""
    return config.model_copy(update={"server": config.server.bound_to(port, grpc_port)})


def _log_built(config: GatewayConfig) -> None:
    log.info("start.agents", agents=list(config.agents), tools=list(config.tools), database=config.storage.address)


async def _reload_on_signal(
    gateway: Gateway,
    given: GatewayConfig,
    served: GatewayConfig,
    asked: asyncio.Event,
    read: Callable[[], GatewayConfig],
) -> None:
    """Never returns. An invalid configuration changes nothing."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            wanted = await asyncio.to_thread(read)
            await gateway.reload(wanted.model_copy(update={name: getattr(served, name) for name in FIXED}))
        except Exception as error:  # noqa: BLE001 - a defect in reading the file must not end a working gateway
            gateway.refused_reload()
            _log_refused(error)
        else:
            for setting in _changed(given, wanted):
                log.warning("reload.needs-restart", setting=setting)
            log.info("reload.done", agents=list(wanted.agents))


def _log_refused(error: Exception) -> None:
    match error:
        case ConfigInvalid():
            for problem in error.problems:
                log.error("reload.refused", problem=str(problem))
        case ValueError():
            log.error("reload.refused", problem=str(error))
        case _:
            log.error("reload.refused", exc_info=error)


def _changed(old: GatewayConfig, new: GatewayConfig) -> list[str]:
    """The changed settings that need a restart, without those that are derived from others."""
    changed = []
    for section in FIXED:
        (before, given), (after, given_too) = _keys(getattr(old, section)), _keys(getattr(new, section))
        names = [name for name in before | after if before.get(name) != after.get(name)]
        changed += [f"{section}.{name}" for name in names if name in given | given_too]
    return changed


def _keys(section: BaseModel) -> tuple[dict[str, object], set[str]]:
    """The values by their keys, and the keys that are given."""
    if not isinstance(section, StorageConfig):
        return dict(section), section.model_fields_set
    (own, own_given), common = _keys(section.settings), dict(section)
    del common["settings"]
    return own | common, section.model_fields_set - {"settings"} | (own_given - common.keys())


async def _wait_drained(gateway: Gateway, signals: Signals, grace: float) -> None:
    """Returns when no turn runs or arrives, after the grace, or at a second signal."""
    try:
        async with asyncio.timeout(grace):
            await first_of(signals.second.wait(), gateway.runner.drained())
    except TimeoutError:
        log.warning("drain.incomplete", grace=grace)
