"""A2A 0.3 by JSON-RPC. Its HTTP+JSON binding writes other names."""

from gateway.a2a.wire.dialect import Dialect
from gateway.a2a.wire.v0_3 import requests, results
from gateway.a2a.wire.v0_3.errors import code

VERSION = "0.3"

DIALECT = Dialect(
    version=VERSION,
    method=requests.method,
    decode=requests.decode,
    decode_query=requests.decode_query,
    encode=results.encode,
    event=results.event,
    earlier_event=results.earlier_event,
    code=code,
    extensions=b"x-a2a-extensions",
    refuses_in_stream=True,
)
