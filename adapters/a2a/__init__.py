"""Other agents that speak A2A: 1.0 over JSON-RPC, HTTP+JSON and gRPC, and 0.3 over JSON-RPC.

Law: an agent is found by its card, and what is said to it and by it is the model of `gateway.a2a`; only a binding knows bytes.
"""
