"""What a binding knows of a request before it reads the body. Law: nothing of the binding itself is behind it, so that a
request over HTTP and one over gRPC are admitted, limited and logged alike."""

import msgspec
from starlette.types import Scope

from gateway.http.reply import Headers
from gateway.http.request_log import TRACED, line_of
from gateway.http.traced import TracedRequest
from gateway.ports.observer import RequestLine


class Arrival(msgspec.Struct, frozen=True):
    """`headers` have names in lower case. `peer` is the address of the other end, '' where it is not known, `line` the line
    of the access log, `query` the query of the URL. `traced` is the span of the request; None where none is wanted."""

    headers: Headers
    peer: str
    line: RequestLine
    query: bytes = b""
    traced: TracedRequest | None = None


def arrival_of(scope: Scope) -> Arrival:
    peer = scope.get("client")
    return Arrival(scope["headers"], peer[0] if peer else "", line_of(scope), scope["query_string"], scope.get(TRACED))
