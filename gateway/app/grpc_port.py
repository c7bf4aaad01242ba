"""The gRPC port of a configuration. Law: grpcio and h2 are imported only where the configuration asks for them."""

import socket
from typing import TYPE_CHECKING

from gateway.config.gateway import GatewayConfig
from gateway.config.problems import ConfigInvalid, Problem, not_listening
from gateway.foundation.shared_port import reserve

if TYPE_CHECKING:
    from gateway.grpc.server import GrpcServer

_PLACE = "server.grpc"


def open_grpc(config: GatewayConfig, *, shared: bool = False) -> "GrpcServer | None":
    """The server on its port, bound; None where gRPC is off. With `shared` the port is reserved for several processes.

    Raises: ConfigInvalid without the packages, or where the port or the files of TLS cannot be used.
    """
    grpc = config.server.grpc
    if grpc is None:
        return None
    problem = grpc_problem(config)
    if problem is not None:
        raise ConfigInvalid([problem])
    from gateway.grpc.connection import Bounds
    from gateway.grpc.server import GrpcServer, Tls

    host, limits = config.server.host, config.limits
    tls = None if grpc.tls is None else Tls(grpc.tls.certificate, grpc.tls.key)
    try:
        bounds = Bounds(limits.request_body, limits.stream_keepalive, limits.stream_blocked)
        return GrpcServer(host, grpc.port, tls, bounds, shared=shared)
    except OSError as error:
        raise not_listening(f"{_PLACE}.port", host, grpc.port, error, "port") from error


def reserve_grpc(config: GatewayConfig) -> socket.socket | None:
    """What keeps the port for several processes; None where gRPC is off. Raises: ConfigInvalid as `open_grpc`."""
    grpc = config.server.grpc
    if grpc is None:
        return None
    try:
        return reserve(config.server.host, grpc.port)
    except OSError as error:
        raise not_listening(f"{_PLACE}.port", config.server.host, grpc.port, error, "port") from error


def grpc_problem(config: GatewayConfig) -> Problem | None:
    """The problem of a configuration that asks for gRPC where its packages cannot be imported."""
    if config.server.grpc is None:
        return None
    try:
        import grpc  # noqa: F401  # asked for its presence
        import h2.connection  # noqa: F401
    except ImportError as error:
        message = (
            f"gRPC needs the packages `grpcio` and `h2`, which cannot be imported ({error}); "
            "install it with: pip install 'a2a-gateway[grpc]'"
        )
        return _problem(_PLACE, message)
    return None


def _problem(path: str, message: str) -> Problem:
    return Problem(file=None, line=None, column=None, path=path, message=message)
