"""The HTTP server: routes, bindings, event streams, cards, administration, authentication.

Law: bytes in, one call of an operation, bytes out; no decision about a conversation.
"""
