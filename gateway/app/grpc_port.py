"""The gRPC port of a configuration. Law: grpcio is imported only where the configuration asks for it."""

import os
import socket
from typing import TYPE_CHECKING

from gateway.config.gateway import GatewayConfig
from gateway.config.problems import ConfigInvalid, Problem
from gateway.foundation.shared_port import reserve

if TYPE_CHECKING:
    from gateway.grpc.server import GrpcServer

_PLACE = "server.grpc"

_QUIET = ("GRPC_VERBOSITY", "NONE")
"""The variable by which gRPC's own core says nothing on standard error, where every line is one of the log."""


def open_grpc(config: GatewayConfig, *, shared: bool = False) -> "GrpcServer | None":
    """The server on its port, bound; None where gRPC is off. With `shared` the port is reserved for several processes.

    Raises: ConfigInvalid without grpcio, or where the port or the files of TLS cannot be used.
    """
    grpc = config.server.grpc
    if grpc is None:
        return None
    problem = grpc_problem(config)
    if problem is not None:
        raise ConfigInvalid([problem])
    from gateway.grpc.server import Bounds, GrpcServer, Tls

    host, limits = config.server.host, config.limits
    tls = None if grpc.tls is None else Tls(grpc.tls.certificate, grpc.tls.key)
    try:
        bounds = Bounds(limits.request_body, limits.stream_keepalive, limits.stream_blocked)
        return GrpcServer(host, grpc.port, tls, bounds, shared=shared)
    except OSError as error:
        raise _not_listening(host, grpc.port, error) from error


def reserve_grpc(config: GatewayConfig) -> socket.socket | None:
    """What keeps the port for several processes; None where gRPC is off. Raises: ConfigInvalid as `open_grpc`."""
    grpc = config.server.grpc
    if grpc is None:
        return None
    try:
        return reserve(config.server.host, grpc.port)
    except OSError as error:
        raise _not_listening(config.server.host, grpc.port, error) from error


def _not_listening(host: str, port: int, error: OSError) -> ConfigInvalid:
    message = f"cannot listen on {host}:{port}: {error}; stop the program that does, or choose another port"
    return ConfigInvalid([_problem(f"{_PLACE}.port", message)])


def grpc_problem(config: GatewayConfig) -> Problem | None:
    """The problem of a configuration that asks for gRPC where grpcio cannot be imported."""
    if config.server.grpc is None:
        return None
    os.environ.setdefault(*_QUIET)
    try:
        import grpc.aio  # noqa: F401  # asked for its presence
    except ImportError as error:
        message = (
            f"gRPC needs the package `grpcio`, which cannot be imported ({error}); "
            "install it with: pip install 'a2a-gateway[grpc]'"
        )
        return _problem(_PLACE, message)
    return None


def _problem(path: str, message: str) -> Problem:
    return Problem(file=None, line=None, column=None, path=path, message=message)
