"""The gRPC server of a gateway process. Law: a call ends with one status, whose text is never that of an exception; a caller
that reads nothing loses its call.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from gateway.a2a.errors import A2AError, Busy, InternalError, MethodNotFound, TooManyRequests, echo
from gateway.a2a.wire import v1_0_proto
from gateway.foundation.clock import Clock
from gateway.foundation.forks import keep_from_copies
from gateway.foundation.shutdown import ActiveCount, Drain
from gateway.grpc import health, reflection
from gateway.grpc.arrivals import Arriving
from gateway.grpc.connection import BEGIN_SECONDS, Bounds, Connection
from gateway.grpc.context import CallerGone, Context
from gateway.grpc.health import HealthService
from gateway.grpc.reflection import ReflectionService
from gateway.grpc.service import A2AService, Pipelines
from gateway.grpc.turns import Held
from gateway.http.server import listen
from gateway.ports.observer import SILENT, Observer

_LAST_SECONDS = 1.0
"""For callers to take what they are told at the end."""

_ENDED = Busy("The gateway is shutting down; ask again.", retry_after=1)

_PUBLIC_CALLS = 1000
"""Open calls of those that need no credential, in the whole process."""

_PUBLIC_MESSAGE = 2**12
"""Bytes of their largest message, which has no more than a name."""

_PREFIX = f"/{v1_0_proto.SERVICE}/"

Call = Callable[[Context], Awaitable[None]]

log = structlog.get_logger("gateway.grpc.server")


class Tls(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


class GrpcServer:
    """Serves one port. It is bound from the start, and answers inside `serving`."""

    def __init__(self, host: str, port: int, tls: Tls | None, bounds: Bounds, *, shared: bool = False) -> None:
        """Port 0 lets the system choose. With `shared` other processes may serve the port as well. Raises: OSError."""
        self._tls = None if tls is None else _tls_context(tls)
        self._socket = listen(host, port, shared=shared)
        self.port: int = self._socket.getsockname()[1]
        self._bounds = bounds
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._held = Held()
        self._arriving = Arriving()
        self._unconnected = asyncio.Event()
        keep_from_copies(self)

    def close(self) -> None:
        """Frees the port."""
        self._socket.close()

    def descriptors(self) -> Iterator[int]:
        """Of all its sockets."""
        yield self._socket.fileno()
        for connection in self._connections:
            yield connection.descriptor

    @asynccontextmanager
    async def serving(
        self,
        pipelines: Pipelines,
        ready: Callable[[], Awaitable[bool]],
        drain: Drain,
        clock: Clock,
        observer: Observer = SILENT,
    ) -> AsyncIterator[None]:
        """Answers calls while the block runs. `ready` says whether requests are accepted. `access` is None where requests get
        no line in the log."""
        async with asyncio.TaskGroup() as tasks:
            service = A2AService(pipelines, clock, observer)
            blocked = self._bounds.blocked
            public = _public_calls(HealthService(ready, drain, blocked), ReflectionService(drain, blocked), clock)
            serve = partial(self._serve, _Calls(service, public))
            self._server = await asyncio.get_running_loop().create_server(
                partial(
                    Connection,
                    serve,
                    tasks,
                    self._bounds,
                    self._held,
                    self._arriving,
                    self._connections.add,
                    self._closed,
                ),
                sock=self._socket,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else BEGIN_SECONDS,
            )
            try:
                yield
            finally:
                service.end()
                await self.retire(0)

    async def _serve(self, calls: "_Calls", context: Context) -> None:
        try:
            await calls.of(context.path)(context)
        except CallerGone:
            context.abandon()
        except asyncio.CancelledError:
            context.give_up(_ENDED)
            raise
        except Exception:  # a defect in one call must not end the others
            log.exception("request.failed", path=context.path)
            context.abandon()
        else:
            context.finish()

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._unconnected.set()

    async def retire(self, grace: float) -> None:
        """Takes no more calls, and lets those that run end within so many seconds, and those that wait for a turn say so; then
        ends them with a status."""
        if self._server is not None:
            self._server.close()
        self._unconnected.clear()
        for connection in tuple(self._connections):
            connection.leave()
        await self._wait_unconnected(grace + _LAST_SECONDS)
        for connection in tuple(self._connections):
            connection.stop(_ENDED)
        await self._wait_unconnected(_LAST_SECONDS)
        for connection in tuple(self._connections):
            connection.abort()

    async def _wait_unconnected(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if self._connections:
                    await self._unconnected.wait()


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    context.set_alpn_protocols(["h2"])
    return context


def _public_calls(
    health_service: HealthService, reflection_service: ReflectionService, clock: Clock
) -> dict[str, Call]:
    """The calls that anybody may make, by their paths."""
    found: dict[str, Call] = {
        f"/{health.SERVICE}/Check": health_service.check,
        f"/{health.SERVICE}/Watch": health_service.watch,
        **{
            f"/{reflection.service_of(version)}/{reflection.METHOD}": partial(reflection_service.talk, version)
            for version in reflection.VERSIONS
        },
    }
    running = ActiveCount()
    return {path: _guarded(call, clock, running) for path, call in found.items()}


def _guarded(call: Call, clock: Clock, running: ActiveCount) -> Call:
    async def guarded(context: Context) -> None:
        context.bound(_PUBLIC_MESSAGE)
        try:
            if running.count >= _PUBLIC_CALLS:
                raise TooManyRequests("Too many health and reflection calls are open; try again later.", retry_after=1)
            with running:
                await call(context)
        except CallerGone:
            raise
        except A2AError as error:
            context.refuse(error)
        except Exception as error:
            correlation_id = clock.correlation_id()
            log.exception("request.failed", correlation_id=correlation_id, exc_info=error)
            context.refuse(InternalError(f"Internal error (correlation id {correlation_id})"))

    return guarded


class _Calls:
    """What a path calls. Every path has a call, also one that is unknown."""

    def __init__(self, service: A2AService, public: Mapping[str, Call]) -> None:
        self._service = service
        self._public = public

    def of(self, path: str) -> Call:
        if path.startswith(_PREFIX):
            return partial(self._service.call, path.removeprefix(_PREFIX))
        return self._public.get(path, _unknown)


async def _unknown(context: Context) -> None:
    context.refuse(MethodNotFound(f"Method not found: {echo(context.path)}"))
