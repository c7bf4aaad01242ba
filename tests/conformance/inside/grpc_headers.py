"""A plugin of pytest: calls by gRPC have the headers of TCK_HEADERS, a line each, as metadata.

Metadata that a call has by itself stays. It runs in the environment of the kits.
"""

import importlib
import os
from collections.abc import Callable
from typing import Any

grpc: Any = importlib.import_module("grpc")

_LINES = (line.split(": ", 1) for line in os.environ["TCK_HEADERS"].splitlines())
_METADATA = {name.lower(): value for name, value in _LINES}


class _Headers(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    def intercept_unary_unary(self, call: Callable[..., Any], details: Any, request: object) -> Any:
        own = dict(details.metadata or ())
        return call(details._replace(metadata=tuple((_METADATA | own).items())), request)

    intercept_unary_stream = intercept_unary_unary


def _insecure_channel(*arguments: Any, _open: Callable[..., Any] = grpc.insecure_channel, **named: Any) -> Any:
    return grpc.intercept_channel(_open(*arguments, **named), _Headers())


grpc.insecure_channel = _insecure_channel
