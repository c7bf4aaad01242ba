"""The gRPC binding of A2A 1.0, on a port of its own, with the health and reflection services.

Law: imported only where the configuration asks for it, because grpcio and h2 are an extra; bytes in, bytes out, by the codec of
`gateway.a2a.wire.protobuf`; no generated modules, since two of the same name cannot live in one process (docs/adr/0028).
"""
