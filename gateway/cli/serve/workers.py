"""`serve` with several processes: how many, the supervisor's way to begin one, and a worker's to find what it is to do."""

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog
import typer

import gateway
from gateway.app.grpc_port import reserve_grpc
from gateway.app.workers.messages import Begin
from gateway.app.workers.orders import Orders, take_place
from gateway.app.workers.process import WorkerProcess, start_worker
from gateway.app.workers.supervisor import Supervisor, WorkersFailed
from gateway.cli.console.output import ExitCode, Stop
from gateway.cli.console.parameters import ServeOptions
from gateway.config.fixed import digests
from gateway.config.gateway import GatewayConfig
from gateway.foundation.shared_port import reserve

log = structlog.get_logger("gateway.cli.serve.workers")

_COMMAND = (sys.executable, "-P", str(Path(gateway.__file__).parents[1] / "a2a_gateway.py"), "serve", "--worker")


def serve_by_workers(config: GatewayConfig, options: ServeOptions, count: int, announce: Callable[[str], None]) -> None:
    """Until a signal. Raises: OSError when the address cannot be bound, ConfigInvalid as `reserve_grpc`, Stop."""
    server = config.server
    with ExitStack() as stack:
        http = stack.enter_context(reserve(server.host, server.port))
        grpc = reserve_grpc(config)
        if grpc is not None:
            stack.enter_context(grpc)
        ports = http.getsockname()[1], None if grpc is None else grpc.getsockname()[1]
        given, fixed = _encoded(options), digests(config)

        async def start(number: int) -> WorkerProcess:
            return await start_worker(_COMMAND, Begin(number, os.getpid(), *ports, sys.path, given, fixed))

        async def run() -> bool:
            return await Supervisor(start, count, server.shutdown_grace, announce).run()

        log.info("start.workers", workers=count)
        gc.freeze()
        gc.enable()
        try:
            served = asyncio.run(run())
        except WorkersFailed as error:
            raise Stop(error.code, error.text) from error
    if not served:
        raise Stop(ExitCode.INTERRUPTED, "ended by a signal before all workers served")


@contextmanager
def worker_place(descriptor: int) -> Generator[tuple[ServeOptions, Orders]]:
    """The options that the supervisor was started with, and its orders. What stops the block is told to the supervisor alone.

    Raises: typer.Exit in place of Stop.
    """
    try:
        begin, orders = take_place(descriptor)
    except (OSError, ValueError) as error:
        raise Stop(ExitCode.USAGE, "serve: --worker is for processes that the gateway itself starts") from error
    sys.path[:] = begin.path
    try:
        yield _decoded(begin.given), orders
    except Stop as stop:
        orders.fails(stop.code, stop.text)
        raise typer.Exit(stop.code) from stop


def refuse_changed(config: GatewayConfig, name: str, orders: Orders) -> None:
    """`name` is that of the file. Workers on several databases would be several gateways. Raises: Stop where a section that all
    workers share is not as the supervisor has read it."""
    changed = [section for section, digest in digests(config).items() if orders.fixed.get(section) != digest]
    if changed:
        which = ", ".join(changed)
        raise Stop(ExitCode.CONFIG_INVALID, f"{name}: {which} changed since the start: restart the gateway")


def _encoded(options: ServeOptions) -> dict[str, Any]:
    """As JSON; a file that has been written already is not written again."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(options, enc_hook=str))
    return decoded


def _decoded(given: dict[str, Any]) -> ServeOptions:
    return msgspec.convert(given, ServeOptions, dec_hook=_path)


def _path(kind: type, value: Any) -> Any:
    return kind(value)
