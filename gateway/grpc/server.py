"""The gRPC server of a gateway process. Law: a call ends with one status, whose text is never that of an exception; a caller
that reads nothing loses its connection.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
import structlog

from gateway.a2a.errors import A2AError, InternalError, MethodNotFound, TooManyRequests, echo
from gateway.a2a.wire import v1_0_proto
from gateway.foundation.access_log import AccessLog
from gateway.foundation.clock import Clock
from gateway.foundation.forks import keep_from_copies
from gateway.foundation.shutdown import ActiveCount, Drain
from gateway.grpc import connections, health, reflection
from gateway.grpc.context import CallerGone, Context, Stuck, refuse
from gateway.grpc.health import HealthService
from gateway.grpc.reflection import ReflectionService
from gateway.grpc.service import A2AService, Pipelines

_LAST_SECONDS = 1.0
"""For calls that still run when the server ends: their answers may be on the way."""

_CALLS = 1000
"""Open calls of one connection. More wait in the client."""

_PUBLIC_CALLS = 1000
"""Open calls of those that need no credential, in the whole process."""

_MOST = 2**31 - 1
"""The largest value of an option of gRPC."""

_PREFIX = f"/{v1_0_proto.SERVICE}/"

Call = Callable[[Context], Awaitable[None]]

log = structlog.get_logger("gateway.grpc.server")


class Tls(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


class Bounds(NamedTuple):
    """`largest` is the number of bytes of the largest message of a caller. `keepalive` is the silence in seconds after which a
    connection is tried, `blocked` the number of seconds after which that of a caller that reads nothing is closed."""

    largest: int
    keepalive: float
    blocked: float


class GrpcServer:
    """Serves one port. It is bound from the start, and answers inside `serving`."""

    def __init__(self, host: str, port: int, tls: Tls | None, bounds: Bounds, *, shared: bool = False) -> None:
        """Port 0 lets the system choose. With `shared` other processes may serve the port as well. Raises: OSError."""
        self._server = grpc.aio.server(options=_options(bounds, shared))
        self._blocked = bounds.blocked
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
                self.port = self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        except RuntimeError:
            raise OSError(f"cannot listen on {address}") from None
        keep_from_copies(self)

    def descriptors(self) -> Iterator[int]:
        """Of all its sockets."""
        return connections.descriptors(self.port)

    @asynccontextmanager
    async def serving(
        self,
        pipelines: Pipelines,
        ready: Callable[[], Awaitable[bool]],
        drain: Drain,
        clock: Clock,
        access: AccessLog | None = None,
    ) -> AsyncIterator[None]:
        """Answers calls while the block runs. `ready` says whether requests are accepted. `access` is None where requests get
        no line in the log."""
        async with asyncio.TaskGroup() as operations:
            service = A2AService(pipelines, operations, clock, access)
            public = _public_calls(
                HealthService(ready, drain, self._blocked), ReflectionService(drain, self._blocked), clock
            )
            self._server.add_generic_rpc_handlers((_Handlers(service, public, self._bounded),))
            await self._server.start()
            try:
                yield
            finally:
                service.end()
                await self._server.stop(_LAST_SECONDS)

    def _bounded(self, call: Call) -> Call:
        """The call, whose connection is closed when its caller takes nothing, be it a message or the status at the end.
        Nothing else ends such a call."""

        async def bounded(context: Context) -> None:
            peer = context.peer()
            try:
                await call(context)
            except Stuck:
                context.set_code(grpc.StatusCode.UNAVAILABLE)
                connections.close(self.port, peer)
            except CallerGone:
                return
            timer = asyncio.get_running_loop().call_later(self._blocked, connections.close, self.port, peer)
            context.add_done_callback(lambda _: timer.cancel())  # type: ignore[arg-type]  # any callable will do

        return bounded

    async def retire(self, grace: float) -> None:
        """Takes no more calls, and lets those that run end within so many seconds."""
        await self._server.stop(grace)


def _options(bounds: Bounds, shared: bool) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", int(shared)),
        ("grpc.max_receive_message_length", min(bounds.largest, _MOST)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", _CALLS),
        # Identity only: what a message would have unpacked is not known before it is.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.keepalive_time_ms", min(int(bounds.keepalive * 1000), _MOST)),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.max_connection_idle_ms", 300_000),
    ]


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
        try:
            if running.count >= _PUBLIC_CALLS:
                raise TooManyRequests("Too many health and reflection calls are open; try again later.", retry_after=1)
            with running:
                await call(context)
        except CallerGone:
            raise
        except A2AError as error:
            refuse(context, error)
        except Exception as error:
            correlation_id = clock.correlation_id()
            log.exception("request.failed", correlation_id=correlation_id, exc_info=error)
            refuse(context, InternalError(f"Internal error (correlation id {correlation_id})"))

    return guarded


class _Handlers(grpc.GenericRpcHandler):
    """Every path has a handler, also one that is unknown. All are declared as streams in both directions, which is the same
    on the wire: so a caller is admitted before its message is read."""

    def __init__(self, service: A2AService, public: Mapping[str, Call], bounded: Callable[[Call], Call]) -> None:
        self._bounded = bounded
        self._calls = service.call
        self._known = {path: self._handler(call) for path, call in public.items()}
        for path in (f"{_PREFIX}{name}" for name in v1_0_proto.PROCEDURES):
            self._known[path] = self._handler(self._call(path))

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        path = details.method
        return self._known.get(path) or self._handler(self._call(path))

    def _call(self, path: str) -> Call:
        if path.startswith(_PREFIX):
            return partial(self._calls, path.removeprefix(_PREFIX), path)

        async def refused(context: Context) -> None:
            refuse(context, MethodNotFound(f"Method not found: {echo(path)}"))

        return refused

    def _handler(self, call: Call) -> "grpc.RpcMethodHandler[bytes, bytes]":
        bounded = self._bounded(call)

        async def behaviour(_: object, context: Context) -> None:
            await bounded(context)

        return grpc.stream_stream_rpc_method_handler(behaviour)
