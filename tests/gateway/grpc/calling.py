"""A gRPC server with a scripted core, and a client of gRPC's own library with the messages of a2a-sdk."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import grpc
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict  # type: ignore[import-untyped]
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from gateway.a2a.wire.v1_0_proto import SERVICE
from gateway.config.gateway import LimitsConfig
from gateway.core.agents import Agent, Agents
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import Drain
from gateway.grpc.connection import Bounds, Connection
from gateway.grpc.server import GrpcServer, Tls
from gateway.http.auth import Authenticator, NoAuthentication
from gateway.http.pipeline import Pipeline
from gateway.operations.quotas import QuotaLimits, Quotas
from gateway.ports.observer import SILENT, Observer
from tests.interaction.harness import CORRELATION_ID, agent
from tests.interaction.scripted import ScriptedOperations

METHODS = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"].methods_by_name
DETAILS = error_details_pb2.DESCRIPTOR
"""Imported so that the details of a status can be read."""

VERSION = (("a2a-version", "1.0"),)
LARGEST = 64 * 1024


def path(name: str) -> str:
    return f"/{SERVICE}/{name}"


@dataclass(frozen=True, slots=True)
class Served:
    """`channel` is the client's."""

    port: int
    channel: Any
    operations: ScriptedOperations
    drain: Drain
    server: GrpcServer

    def call(self, name: str, params: Any = None, metadata: Any = VERSION, **options: Any) -> Any:
        """The call of a method with ProtoJSON params; its response or its stream, as messages of a2a-sdk."""
        method = METHODS[name]
        request = ParseDict(params or {}, getattr(a2a_pb2, method.input_type.name)())
        return self.raw(path(name), request.SerializeToString(), metadata, method, **options)

    def raw(self, where: str, payload: bytes, metadata: Any = VERSION, method: Any = None, **options: Any) -> Any:
        kind = getattr(a2a_pb2, method.output_type.name, None) if method is not None else None
        make = self.channel.unary_stream if method is not None and method.server_streaming else self.channel.unary_unary
        return make(where, response_deserializer=kind and kind.FromString)(payload, metadata=metadata, **options)


@asynccontextmanager
async def serving(
    *agents: Agent,
    operations: ScriptedOperations | None = None,
    limits: LimitsConfig | None = None,
    auth: Authenticator | None = None,
    quotas: QuotaLimits | None = None,
    observer: Observer = SILENT,
    tls: Tls | None = None,
    credentials: grpc.ChannelCredentials | None = None,
    ready: bool = True,
    keepalive: float = 15,
) -> AsyncIterator[Served]:
    operations, drain = operations or ScriptedOperations(), Drain()
    clock = Clock(now=lambda: 1_795_168_800_000, correlation_id=lambda: CORRELATION_ID)
    limits = limits or LimitsConfig.model_construct(request_body=LARGEST)
    pipeline = Pipeline(
        operations,
        Agents(agents or (agent("echo"),)),
        auth or NoAuthentication(),
        limits,
        clock,
        drain,
        Quotas(clock, quotas),
    )

    async def is_ready() -> bool:
        return ready and not drain.is_set()

    server = GrpcServer("127.0.0.1", 0, tls, Bounds(limits.request_body, keepalive, limits.stream_blocked))
    async with (
        server.serving(lambda: nullcontext(pipeline), is_ready, drain, clock, observer),
        _channel(f"127.0.0.1:{server.port}", credentials) as channel,
    ):
        yield Served(server.port, channel, operations, drain, server)


def channel_to(port: int) -> Any:
    """A channel of gRPC's own, with a connection that no other shares."""
    return _channel(f"127.0.0.1:{port}", None)


def _channel(address: str, credentials: grpc.ChannelCredentials | None) -> Any:
    options: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        return grpc.aio.insecure_channel(address, options)
    return grpc.aio.secure_channel(address, credentials, [*options, ("grpc.ssl_target_name_override", "localhost")])


def in_json(message: Any) -> Any:
    return MessageToDict(message)


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """The error that the call ends with."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call was answered")


def details(error: grpc.aio.AioRpcError) -> list[dict[str, Any]]:
    """The details of the status, each with its `@type`."""
    trailing = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    found: list[dict[str, Any]] = MessageToDict(status)["details"]
    return found


def connection_of(served: Served) -> Connection:
    """The only one that the server has."""
    [found] = served.server._connections
    return found
