"""Gateways for tests: in this process, or in one of its own that can be killed and started again."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.app.application import Gateway, running
from gateway.app.grpc_port import open_grpc
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.engine.runtime import Pace
from gateway.foundation.clock import Clock
from gateway.testing.serving import serve
from tests.support.fork_server import Forked, ForkServer, fork_server
from tests.support.stores import ledger_url

_PROJECT = Path(__file__).parents[1]
_READY_WITHIN_SECONDS = 60
_ENDED_WITHIN_SECONDS = 60
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:\d+")
_DATABASE = "gateway.db"


@dataclass(frozen=True, slots=True)
class Local:
    """A gateway in this process. `grpc` is its port for gRPC, None where it has none."""

    url: str
    gateway: Gateway
    database: Path
    grpc: int | None = None


async def _pass(_: float) -> None:
    await asyncio.sleep(0)


AT_ONCE = Pace(_pass)
"""A call that failed is made again without a wait."""

StartLocal: TypeAlias = Callable[..., Awaitable[Local]]


@asynccontextmanager
async def local_gateway(
    agents: str,
    directory: Path,
    *,
    settings: str = "",
    clock: Clock | None = None,
    registry: Registry | None = None,
    tapped: Callable[[GatewayConfig], Registry] | None = None,
    pace: Pace | None = None,
    grpc: bool = False,
) -> AsyncIterator[Local]:
    """Runs a gateway on a free loopback port. `agents` is the YAML below `agents:`, `settings` that of other sections. With
    `grpc` it serves gRPC on another. `tapped` makes a registry for the configuration."""
    front = _Front()
    plugins = registry or Registry()
    port = {"server.grpc.port": 0} if grpc else {}
    async with serve(front) as url, AsyncExitStack() as stack:
        config = load(
            _document(directory, agents, settings),
            source="test.yaml",
            env={},
            plugins=plugins,
            base_dir=directory,
            # What a command says on standard error is compared with what the test expects.
            overrides={"server.public_url": url, "logs.requests": False, "logs.turns": False, **port},
        )
        server = open_grpc(config)
        if server is not None:
            bound = config.server.bound_to(config.server.port, server.port)
            config = config.model_copy(update={"server": bound})
        plugins = plugins if tapped is None else tapped(config)
        gateway = await stack.enter_async_context(running(config, plugins, clock, pace))
        if server is not None:
            await stack.enter_async_context(gateway.serving_grpc(server))
        front.app = gateway.app
        yield Local(url, gateway, directory / _DATABASE, None if server is None else server.port)


@pytest.fixture
async def start_local(tmp_path: Path) -> AsyncGenerator[StartLocal]:
    """Starts gateways of this process, with their database in the test's folder; they last as long as the test."""
    async with AsyncExitStack() as stack:

        async def start(
            agents: str, *, settings: str = "", clock: Clock | None = None, pace: Pace | None = None
        ) -> Local:
            gateway = local_gateway(agents, tmp_path, settings=settings, clock=clock, pace=pace)
            return await stack.enter_async_context(gateway)

        yield start


class _Front:
    """Stands on the port before the gateway knows which one it is."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def _document(directory: Path, agents: str, settings: str, lease: str = "5s") -> str:
    lines = "".join(f"  {line}\n" for line in agents.splitlines())
    storage = f"{{url: '{ledger_url(directory / _DATABASE)}', lease_timeout: {lease}}}"
    return f"version: 1\nstorage: {storage}\n{settings}\nagents:\n{lines}"


# --- a process of its own ---------------------------------------------------------------------------------------------


class Child(asyncio.SubprocessProtocol):
    """A gateway in a process of its own. `output` is all that it wrote to stdout and stderr."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.url = ""
        self._ready = asyncio.Event()
        self._closed = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output += data
        found = _ADDRESS.search(self.output)
        if found is not None and not self.url:
            self.url = found[0].decode()
            self._ready.set()

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport.close()
        self._ready.set()
        self._closed.set()

    async def ready(self) -> None:
        """Returns when it serves. Raises: AssertionError with what it wrote when it ended instead."""
        async with asyncio.timeout(_READY_WITHIN_SECONDS):
            await self._ready.wait()
        assert self.url, self.output.decode(errors="replace")

    @property
    def pid(self) -> int:
        assert self._transport is not None
        return int(self._transport.get_pid())

    def signal(self, number: signal.Signals) -> None:
        assert self._transport is not None
        self._transport.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has ended; minus the signal's number when one has killed it."""
        assert self._transport is not None
        async with asyncio.timeout(_ENDED_WITHIN_SECONDS):
            await self._closed.wait()
        code = self._transport.get_returncode()
        assert code is not None
        return code

    def stop_listening(self) -> None:
        """What it writes from now on meets a broken pipe."""
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(1)
        assert pipe is not None
        pipe.close()

    async def kill(self) -> None:
        """`kill -9`: whatever it was about to do, it does not do."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def aclose(self) -> None:
        if not self._closed.is_set():
            await self.kill()


class _ForkedChild(Child, asyncio.Protocol):
    """As a child that was started by its command, but forked: a pipe has its output, the fork server its end."""

    _process: Forked
    _pipe: asyncio.ReadTransport

    def connection_made(self, transport: Any) -> None:
        self._pipe = transport

    def data_received(self, data: bytes) -> None:
        self.pipe_data_received(1, data)

    async def start(self, server: ForkServer, arguments: list[str]) -> None:
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as output:
            pipe = os.fdopen(reading, "rb", buffering=0)
            await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)
            self._process = await server.command(arguments, _environment(), output.fileno())

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.signal(number)

    async def ended(self) -> int:
        code = await self._process.dead()
        await self._closed.wait()
        return code

    def stop_listening(self) -> None:
        self._pipe.close()

    async def aclose(self) -> None:
        if not self._process.ended.done():
            await self.kill()
        self._pipe.close()  # a copy of the process may hold the other end


StartChild: TypeAlias = Callable[[], Awaitable[Child]]


@asynccontextmanager
async def child_gateways(
    agents: str, directory: Path, *, settings: str = "", lease: str = "1s"
) -> AsyncIterator[StartChild]:
    """Gives a function that starts a gateway process on one and the same configuration and database.

    `lease`: how soon one takes what a dead one was at.
    """
    file = directory / "gateway.yaml"
    document = _document(directory, agents, settings, lease)
    file.write_text(f"server: {{port: 0}}\n{document}" if "server:" not in settings else document)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(fork_server())

        async def start() -> Child:
            child = _ForkedChild()
            await child.start(server, ["serve", "-c", str(file)])
            stack.push_async_callback(child.aclose)
            await child.ready()
            return child

        yield start


def _environment() -> dict[str, str]:
    """Without what would override the configuration."""
    return {name: value for name, value in os.environ.items() if not name.startswith("A2A_GATEWAY__")}
