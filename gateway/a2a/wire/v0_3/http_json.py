"""A2A 0.3 by HTTP+JSON, below `/v1` of an agent's address."""

from gateway.a2a.wire.dialect import Dialect
from gateway.a2a.wire.v0_3 import json_rpc, proto_requests, proto_results
from gateway.a2a.wire.v0_3.errors import code

DIALECT = Dialect(
    version=json_rpc.VERSION,
    method=proto_requests.method,
    decode=proto_requests.decode,
    decode_query=proto_requests.decode_query,
    encode=proto_results.encode,
    event=proto_results.event,
    earlier_event=proto_results.earlier_event,
    code=code,
    extensions=json_rpc.DIALECT.extensions,
)
